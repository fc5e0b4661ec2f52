//! API kinds of the autoscaling group.

pub mod horizontal_pod_autoscaler;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[horizontal_pod_autoscaler::kind];
