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
