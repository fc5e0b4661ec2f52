//! API kinds of the apiregistration.k8s.io group.

pub mod api_service;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[api_service::kind];
