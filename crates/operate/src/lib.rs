//! Operator tools: diagnosis of a host and cluster, and causal traces of objects.
//!
//! [`checkup`] evaluates observations of a host and its cluster. [`chain`] orders the information in objects, events
//! and logs by time. [`static_pods`] builds the manifests of a control plane in static pods. All I/O is in the binary.

pub mod chain;
pub mod checkup;
pub mod static_pods;
