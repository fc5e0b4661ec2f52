//! MVCC key space: revisions, leases, compaction and watches as a pure state machine.
//!
//! [`State`] holds all keys, users and roles in memory. It changes only by [`State::apply`] of a [`Command`] from the
//! replicated log, so members that applied the same log have the same state. There is no access to time, disk or
//! network.
//!
//! # Invariants
//!
//! - The key space equals a model that keeps the full history. A clone never changes. *Enforced by*
//!   `state_behaves_like_a_model_with_full_history`, `tree_behaves_like_a_sorted_map_and_clones_never_change`.
//! - A watcher receives every change in order. A watcher that does not read delays no other client. *Enforced by*
//!   `watcher_receives_every_change_in_order`, `client_that_does_not_read_delays_no_other_client`.
//! - A compaction does not wait for the removal of history, and the progress of the removal is not observable.
//!   *Enforced by* `progress_of_history_removal_is_not_observable`.

#[cfg(test)]
mod arbitrary;
mod checkpoint;
mod command;
mod directory;
mod error;
mod lessor;
mod range;
mod record;
mod span;
mod state;
mod tree;
mod watch;
mod wire;

pub use checkpoint::CorruptCheckpoint;
pub use command::{
    Alarm, AlarmChange, Command, Compare, CorruptCommand, Delete, Operation, Put, Relation, Target, Txn,
};
pub use directory::{Access, Caller, Directory, DirectoryChange, DirectoryError, PasswordHash, Permission, User};
pub use error::Error;
pub use lessor::Lessor;
pub use range::{Bounds, Range, RangeReply, Sort, SortBy};
pub use record::{Event, Record, ValueInterner};
pub use span::{End, Span};
pub use state::{EventBatch, Lease, OperationBody, OperationReply, Outcome, Reply, State};
pub use watch::{WatchId, WatchSet};

/// Number of transactions that changed something; a new store is at 1.
pub type Revision = i64;

/// Lease ID; 0 is none.
pub type LeaseId = i64;
