//! Invariants of the store, one file each.

pub mod acknowledged_survives;
pub mod committed_is_immutable;
pub mod converges;
pub mod history_is_retained;
pub mod leases_last;
pub mod linearizable;
pub mod one_leader;
pub mod revisions_grow;
pub mod watch_misses_nothing;

/// A violated invariant: its name and a description.
pub type Violation = (&'static str, String);
