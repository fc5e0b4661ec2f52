//! API kinds of the policy group.

pub mod pod_disruption_budget;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[pod_disruption_budget::kind];
