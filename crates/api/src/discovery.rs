//! The kinds of discovery.k8s.io.

pub mod endpoint_slice;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[endpoint_slice::kind];
