//! Where a pod runs: decisions over a snapshot of the cluster, and the queue of pods that wait for one.
//!
//! Nothing here reads a clock or a socket. A shell condenses what it watches into [`Pod`]s and [`Node`]s, keeps the
//! [`Snapshot`] and the queue up to date, and carries out what is decided.

pub mod framework;
pub mod hash;
pub mod node;
pub mod plugins;
pub mod pod;
pub mod profile;
pub mod queue;
pub mod resources;
pub mod schedule;
pub mod snapshot;

pub use node::Node;
pub use pod::{Pod, PodId};
pub use profile::Profile;
pub use queue::Queue;
pub use schedule::{Decision, schedule};
pub use snapshot::{NodeId, Snapshot};
