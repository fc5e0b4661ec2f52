//! The kinds of apiregistration.k8s.io.

pub mod api_service;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[api_service::kind];
