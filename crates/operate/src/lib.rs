//! What an operator is told: whether a machine can carry a cluster, and what an object set in motion.
//!
//! [`checkup`] judges what was observed of a machine and of the cluster on it; [`chain`] puts what is written in objects, events
//! and logs into the order in which it happened; [`static_pods`] are the manifests of a control plane that runs in pods. Who looks,
//! asks and writes is the binary.

pub mod chain;
pub mod checkup;
pub mod static_pods;
