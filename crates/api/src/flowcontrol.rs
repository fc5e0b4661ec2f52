//! The kinds of flowcontrol.apiserver.k8s.io.

pub mod flow_schema;
pub mod priority_level_configuration;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[flow_schema::kind, priority_level_configuration::kind];
