//! Hollow nodes: simulated kubelets whose pods become Running and Ready without containers.
//!
//! [`node`] and [`pod_lifecycle`] compute the status of nodes and pods; `run` watches pods and writes it. The annotation
//! `hollow.knarr.dev/does` (`run`, `notready`, `succeed`, `fail` or `fail:CODE`) determines the behaviour of a pod's
//! containers. Without it, the image name does, such as `hollow/fail:3`. Otherwise pods with restart policy Always run,
//! and others succeed immediately.

pub mod node;
pub mod pod_lifecycle;
mod run;

pub use run::{Nodes, Settings};
