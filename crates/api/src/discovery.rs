//! API kinds of the discovery.k8s.io group.

pub mod endpoint_slice;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[endpoint_slice::kind];
