//! Controller runtime: executes the plans of controllers as API requests.
//!
//! One watch per kind feeds the [`Caches`] that all controllers share. For each controller, [`run()`] keeps a [`queue`]
//! of keys, observes and plans one key at a time, and executes the plan. A key is not observed again before the caches
//! contain what was written for it (write barrier), so that no controller acts on outdated objects.
//!
//! # Invariants
//!
//! - A controller creates no duplicates, however late its watches are, and a plan can be interrupted after any action.
//!   *Enforced by* `lagging_watches_do_not_cause_duplicates`, `properties_hold_in_generated_clusters`.
//! - If the leader is killed, another instance takes over and creates no duplicates. An idle controller manager writes
//!   only its Lease. *Enforced by* `failover_after_leader_kill_creates_no_duplicate_pods`,
//!   `idle_controller_manager_writes_only_its_lease`.
//! - A rejected write does not prevent the status update that reports it. *Enforced by*
//!   `quota_counts_usage_and_rejects_objects_above_the_limit`.

pub mod caches;
mod driver;
mod effect;
mod execute;
mod global;
mod metadata_caches;
pub mod queue;
mod registration;
mod run;

pub use caches::Caches;
pub use driver::Driver;
pub use global::run_global;
pub use metadata_caches::MetadataCaches;
pub use registration::Member;
pub use run::run;
