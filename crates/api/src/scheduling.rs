//! API kinds of the scheduling.k8s.io group.

pub mod pod_group;
mod policy;
pub mod priority_class;
pub mod workload;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[pod_group::kind, priority_class::kind, workload::kind];
