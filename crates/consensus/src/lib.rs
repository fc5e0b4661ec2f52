//! A Raft member as a step machine: inputs in, effects out, without I/O, clock or random source.
//!
//! ```text
//!   tick, message, propose, read, persisted, applied
//!                        │
//!                        v
//!                     Member ──effects()──> Effects { persist, send, committed, reads, snapshots, … }
//! ```
//!
//! The caller writes `persist` and then calls [`Member::persisted`]. The member itself holds back messages that must
//! not be sent before, so a caller cannot acknowledge too early unless it misreports its disk. Peers use the codec of
//! [`message`]: the protobuf parser of the `raft` crate never reads bytes from the network or from a disk.
//!
//! # Invariants
//!
//! - A disconnected leader is replaced in two ticks. A leader whose heartbeats reach a majority remains leader. A
//!   leader that is removed transfers leadership first. *Enforced by*
//!   `disconnected_leader_is_replaced_in_two_ticks_without_split_votes`,
//!   `leader_disconnected_from_one_member_stays_leader`,
//!   `removed_leader_transfers_leadership_first_so_that_the_quorum_survives`.
//! - Followers of a silent leader stand for election one after the other. *Enforced by*
//!   `silent_leader_is_replaced_after_the_timeout_without_split_votes`.
//! - A proposal of a removed member is not applied twice, however late a copy of it arrives. *Enforced by*
//!   `duplicated_request_of_a_removed_member_is_not_admitted`, `thousand_seeds_pass`.

pub mod change;
pub mod codec;
pub mod entry;
pub mod group;
pub mod member;
pub mod message;
mod storage;

pub use change::{Change, ChangeError, Peer};
pub use codec::DecodeError;
pub use entry::{Entry, HardState, Payload, RequestId};
pub use group::Group;
pub use member::{
    CommittedEntry, Config, Effects, Fault, Member, Persist, Proposal, RecoveredState, Role, SendSnapshot,
    SnapshotMeta, Status,
};
pub use message::{Message, ProposeError};
