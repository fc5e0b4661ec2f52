//! The kinds of scheduling.k8s.io.

pub mod pod_group;
mod policy;
pub mod priority_class;
pub mod workload;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[pod_group::kind, priority_class::kind, workload::kind];
