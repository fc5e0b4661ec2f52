//! API kinds of the node.k8s.io group.

pub mod runtime_class;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[runtime_class::kind];
