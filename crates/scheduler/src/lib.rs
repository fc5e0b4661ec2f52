//! The kube-scheduler's decisions: scheduling over a snapshot of the cluster, and the queue of pending pods.
//!
//! This crate reads no clock and no socket. The caller passes watched objects to an [`Engine`] and executes the steps
//! that it returns. Internally, objects are condensed into [`Pod`]s and [`Node`]s, which the [`Snapshot`] and the
//! [`Queue`] hold.
//!
//! # Invariants
//!
//! - Every decision equals the one that a direct implementation of filters and scores makes. *Enforced by*
//!   `every_decision_equals_the_reference`.
//! - An assumed pod uses its resources until the watch reports it, its binding fails, or it is deleted. *Enforced by*
//!   `assumed_pod_occupies_resources_before_the_watch_reports_it`,
//!   `failed_binding_releases_resources_and_retries_the_pod`, `pod_deleted_during_binding_is_forgotten`,
//!   `panicking_request_counts_as_failed`.
//! - An unschedulable pod is retried only after a change that may help it, and misses no such change. *Enforced by*
//!   `new_node_wakes_only_pods_that_fit_it`, `cycle_with_dropped_events_is_retried`.
//! - A pod that fits is placed without a timeout, and a pod whose decision panics does not block others. *Enforced by*
//!   `schedulable_pod_is_placed_without_a_timeout`, `pod_with_a_panicking_plugin_does_not_block_others`.
//! - A device is allocated to one claim only, from the decision until the claim releases it. *Enforced by*
//!   `allocation_contains_node_selector_and_configurations`, `allocated_devices_are_unavailable_until_released`,
//!   `claim_is_allocated_before_its_pod_is_bound_and_others_wait`.
//! - The scenarios in `scenarios/` produce exactly the recorded transcripts. *Enforced by*
//!   `transcripts_are_as_written`.

pub mod config;
pub mod devices;
pub mod engine;
pub mod extender;
pub mod framework;
pub mod hash;
pub mod node;
pub mod plugins;
pub mod pod;
pub mod profile;
pub mod queue;
pub mod resources;
pub mod schedule;
pub mod selectors;
pub mod snapshot;
pub mod status;
pub mod storage;

pub use config::Configuration;
pub use engine::Engine;
pub use node::Node;
pub use pod::{Pod, PodId};
pub use profile::Profile;
pub use queue::Queue;
pub use schedule::{Decision, schedule};
pub use snapshot::{NodeId, Snapshot};
