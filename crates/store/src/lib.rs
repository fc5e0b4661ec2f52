//! etcd-compatible store: a replicated, durable key-value store.
//!
//! ```text
//!  etcd (gRPC, HTTP) ──> Backend
//!                           │
//!  Node (tokio) ── owns ──> Replica (sync, no I/O) = consensus::Member + the state machine
//!    │  │                      │
//!    │  └── peer (TLS) <──send─┤
//!    └───── log thread <─persist┘   Log (records, groups, one sync) + checkpoints, over a Disk
//! ```
//!
//! The simulation runs the same [`Replica`], [`log`] and [`checkpoint`] code on a simulated disk and network.
//!
//! # Invariants
//!
//! - Under any simulated fault, including full disks, compactions and membership changes: committed entries stay, a
//!   term has one leader, acknowledged writes survive, reads are linearizable, revisions grow, and leases last.
//!   *Enforced by* `thousand_seeds_pass`.
//! - etcdctl prints the same against this store and against etcd. *Enforced by*
//!   `etcdctl_prints_the_same_against_etcd_and_against_this_store`,
//!   `etcdctl_prints_the_same_against_three_members_of_either`,
//!   `etcdctl_checks_have_the_same_result_against_etcd_and_this_store`.
//! - With a full disk or above its quota the store is read-only, loses no data, and accepts writes again when there is
//!   space. *Enforced by* `full_disk_makes_the_store_read_only_and_loses_no_writes`,
//!   `reserve_becomes_a_segment_on_a_full_disk_and_is_replenished`,
//!   `embedded_store_enforces_the_quota_and_recovers_after_compaction`.
//! - A member with a full disk does not stop the cluster while a majority has space. *Enforced by*
//!   `sequential_server_failures_lose_no_acknowledged_writes`,
//!   `full_disk_makes_the_store_read_only_and_loses_no_writes`.
//! - A value in the value file keeps its bytes while other values are added and dropped, and released space is reused.
//!   A damaged value is never written to a checkpoint. *Enforced by*
//!   `values_keep_their_bytes_while_others_are_added_and_dropped`, `released_space_is_reused`,
//!   `damaged_value_is_not_written_to_a_checkpoint`, `values_are_equal_in_memory_and_in_the_file`.
//! - Snapshots are saved while the store runs. After a restore, a client that saw a higher revision must list again.
//!   *Enforced by* `embedded_store_is_snapshotted_while_running_and_restored`,
//!   `server_changes_its_address_and_cluster_is_restored_from_a_snapshot`.
//! - Metrics URLs serve no keys. A learner serves only stale reads. Without a leader, calls that require one fail and
//!   their streams are cancelled. *Enforced by* `metrics_urls_do_not_serve_keys`,
//!   `metrics_listener_serves_health_and_metrics_but_no_data`, `learner_serves_only_stale_reads`,
//!   `calls_that_require_a_leader_fail_and_streams_are_cancelled_without_one`.

pub mod backend;
pub mod checkpoint;
pub mod client;
pub mod disk;
pub mod etcd;
#[doc(hidden)]
pub mod fuzz;
pub mod log;
pub mod member;
pub mod open;
pub mod peer;
mod reloading;
pub mod replica;
pub mod sessions;
pub mod single_member;
pub mod snapshot;
pub mod value_file;
pub mod watch;

pub use member::Node;
pub use replica::Replica;
