//! The kubelet: runs the pods of a node through CRI.
//!
//! ```text
//!   API server ──watch──> pods ──> one worker per pod: observe ──> plan ──> execute ──> CRI
//!                                        ^                                   │
//!        status, once per change <───────┴──── events, timers, probes <──────┘
//! ```
//!
//! Decisions are pure functions: [`plan`] returns the next actions of a pod and [`status`] its status; the modules
//! around them build CRI messages. The workers that execute actions make no decisions.
//!
//! # Invariants
//!
//! - A pod's next actions depend only on its spec, the runtime's state and the worker's memory. Termination kills
//!   containers, then sidecars, then stops the sandbox. *Enforced by*
//!   `containers_follow_their_sandbox_and_their_init_containers`,
//!   `termination_kills_containers_then_sidecars_then_stops_sandbox`.
//! - A status patch is sent once per change, applies only to the pod with that UID, and keeps conditions of other
//!   writers. A terminal phase is reported only after all containers exited. *Enforced by*
//!   `foreign_conditions_and_transition_times_are_retained`, `patch_contains_only_changes_and_the_uid`,
//!   `terminal_phase_is_reported_after_all_containers_exited`,
//!   `terminal_phase_is_reported_after_all_containers_terminated`.
//! - A container that was reported as terminated and must not restart stays terminated in the status and is not started
//!   again, so that the API server accepts every status. *Enforced by*
//!   `container_reported_as_terminated_stays_terminated`, `completed_container_lost_by_the_runtime_does_not_run_again`.
//! - A restarted kubelet finds its pods. A deleted pod leaves no mount, directory or sandbox. *Enforced by*
//!   `restarted_kubelet_finds_its_pods`, `pod_runs_is_reported_and_is_removed_completely`.
//! - The files of a volume change atomically, and no path leads out of the volume. A volume is set up once: modes that
//!   a container sets are kept. *Enforced by* `files_change_atomically_and_stale_ones_are_removed`,
//!   `missing_keys_and_paths_outside_the_volume_are_rejected`,
//!   `modes_set_by_a_container_survive_restarts_and_volume_updates`.
//! - No device, CPU or user ID range has two owners, and allocations survive a restart. A resize without room is
//!   deferred. *Enforced by* `deferred_resize_survives_a_kubelet_restart`,
//!   `devices_are_allocated_once_and_reused_from_init_containers`,
//!   `entire_sockets_and_cores_are_allocated_first_and_never_twice`, `id_ranges_of_pods_are_exclusive_and_stable`,
//!   `device_plugin_devices_are_allocated_to_containers`.
//! - CPUs, memory and devices of a container come from the NUMA nodes that the topology policy requires; otherwise the
//!   pod is rejected and holds nothing. *Enforced by* `cpus_and_memory_are_on_one_numa_node_or_the_pod_is_rejected`,
//!   `restricted_policy_rejects_hints_that_are_not_preferred`, `memory_allocations_survive_a_restart`.
//! - Operations of storage and resource drivers are undone after the last user of the volume or claim, even by a
//!   restarted kubelet. *Enforced by* `csi_volume_is_attached_staged_published_and_removed`,
//!   `resource_claim_is_prepared_and_its_device_is_in_the_container`.
//! - Pods above their ephemeral storage limit are evicted. Evicted pods and pods of a node that shuts down get the
//!   grace period that the node allows. *Enforced by* `pods_over_their_ephemeral_storage_limit_are_evicted`,
//!   `memory_pressure_sets_the_condition_and_evicts_best_effort_pods`,
//!   `graceful_node_shutdown_terminates_pods_in_priority_order`.
//! - A pod can use an image on the node only with credentials that could pull it, also after a restart. *Enforced by*
//!   `image_is_usable_with_credentials_that_could_pull_it`, `pull_records_survive_a_restart`,
//!   `image_pull_secret_is_used_for_a_private_registry`.
//! - A kubelet with only a bootstrap token gets its certificates, renews them before they expire, and bootstraps again
//!   if they have expired. *Enforced by* `kubelet_bootstraps_with_a_token_and_rotates_its_certificates`,
//!   `certificate_is_renewed_before_expiry_and_not_continuously`.
//! - Only the log of the current and of the previous container is kept, no log outlives its pod, and the link of a log
//!   is removed with the log. *Enforced by* `container_log_links_exist_until_the_containers_are_removed`,
//!   `log_symlink_exists_until_the_log_is_removed`.
//! - No file of a container blocks the kubelet or is read without a limit. Cleanup never removes the content of a
//!   mount. *Enforced by* `fifo_as_termination_log_does_not_block`, `huge_hosts_file_is_not_read_entirely`,
//!   `removing_a_pod_never_removes_the_content_of_its_volumes`, `purge_keeps_the_content_of_mounts`.

pub mod admission;
pub mod backoff;
mod blocking;
pub mod bootstrap;
mod cgroups;
mod checkpoint;
pub mod config;
pub mod container;
pub mod context;
mod counters;
pub mod cpus;
pub mod devices;
pub mod dns;
pub mod environment;
mod events;
pub mod eviction;
mod hooks;
mod housekeeping;
mod http_client;
mod images;
mod kernel;
mod kubelet;
pub mod logs;
pub mod memory;
pub mod node;
mod numa;
pub mod plan;
mod plugins;
mod pod_resources;
mod pod_worker;
mod pods;
mod probe;
mod referenced_objects;
pub mod resize;
pub mod resources;
mod runtime;
pub mod runtime_status;
pub mod sandbox;
pub mod security;
mod server;
pub mod shutdown;
pub mod standalone;
mod static_pods;
pub mod status;
pub mod swap;
pub mod terminate;
pub mod topology;
mod usage;
mod user_namespaces;
pub mod volumes;

/// Views of pods and containers.
pub use api::view as pod;
pub use config::Config;
pub use images::providers::config as credential_providers;
pub use kubelet::{Kubelet, StartError};
pub use runtime::Runtime;
pub use server::{ServeError, TlsError};
