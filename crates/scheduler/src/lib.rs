//! The kube-scheduler's decisions: scheduling over a snapshot of the cluster, and the queue of pending pods.
//!
//! This crate reads no clock and no socket. The caller passes watched objects to an [`Engine`] and executes the steps
//! that it returns. Internally, objects are condensed into [`Pod`]s and [`Node`]s, which the [`Snapshot`] and the
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
