//! The kinds of autoscaling.

pub mod horizontal_pod_autoscaler;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[horizontal_pod_autoscaler::kind];
