//! API kinds of the apiextensions.k8s.io group, and the kinds that CRDs define.

pub mod custom_resource;
pub mod custom_resource_definition;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[custom_resource_definition::kind];
