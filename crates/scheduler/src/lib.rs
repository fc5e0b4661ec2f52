//! Where a pod runs: decisions over a snapshot of the cluster, and the queue of pods that wait for one.
//!
//! Nothing here reads a clock or a socket. A shell gives an [`Engine`] the objects that it watches and carries out the
//! steps that come out; inside, objects are condensed into [`Pod`]s and [`Node`]s, which the [`Snapshot`] and the
//! [`Queue`] hold.

pub mod config;
pub mod devices;
pub mod engine;
pub mod extender;
pub mod framework;
pub mod hash;
pub mod node;
pub mod plugins;
pub mod pod;
pub mod profile;
pub mod queue;
pub mod resources;
pub mod schedule;
pub mod selectors;
pub mod snapshot;
pub mod status;
pub mod storage;

pub use config::Configuration;
pub use engine::Engine;
pub use node::Node;
pub use pod::{Pod, PodId};
pub use profile::Profile;
pub use queue::Queue;
pub use schedule::{Decision, schedule};
pub use snapshot::{NodeId, Snapshot};
