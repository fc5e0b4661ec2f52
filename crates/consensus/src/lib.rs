//! One Raft member as a step machine: inputs in, effects out, no I/O, no clock, no randomness of its own.
//!
//! ```text
//!   tick, message, propose, read, persisted, applied
//!                        │
//!                        v
//!                     Member ──effects()──> Effects { persist, send, committed, reads, snapshots, … }
//! ```
//!
//! The shell writes what `persist` holds and then calls [`Member::persisted`]; messages that must not leave before that are held
//! back by the member itself, so a shell cannot acknowledge too early unless it lies about its disk. Peers speak the codec of
//! [`message`]: the protobuf parser of the `raft` crate never sees a byte that came from the network or from a disk.

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
    Committed, Config, Effects, Fault, Member, Persist, Proposal, ProposeError, Recovered, Role, SendSnapshot,
    SnapshotMeta, Status,
};
pub use message::Message;
