//! The kinds of apiextensions.k8s.io, and those that they make.

pub mod custom_resource;
pub mod custom_resource_definition;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[custom_resource_definition::kind];
