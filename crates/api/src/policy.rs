//! The kinds of policy.

pub mod pod_disruption_budget;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[pod_disruption_budget::kind];
