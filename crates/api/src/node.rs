//! The kinds of node.k8s.io.

pub mod runtime_class;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[runtime_class::kind];
