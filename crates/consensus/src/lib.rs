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
