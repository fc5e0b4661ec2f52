//! The cluster's only truth: a replicated, durable key-value store that speaks etcd's protocol.
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
//! The simulation drives the same [`Replica`], [`log`] and [`checkpoint`] code over a disk and a network of its own.

pub mod alone;
pub mod backend;
pub mod checkpoint;
pub mod client;
pub mod disk;
pub mod etcd;
#[doc(hidden)]
pub mod fuzz;
pub mod log;
pub mod node;
pub mod open;
pub mod peer;
mod renewed;
pub mod replica;
pub mod sessions;
pub mod shelf;
pub mod snapshot;
pub mod watch;

pub use node::Node;
pub use replica::Replica;
