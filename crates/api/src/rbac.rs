//! The kinds of rbac.authorization.k8s.io.

pub mod cluster_role;
pub mod cluster_role_binding;
pub mod role;
pub mod role_binding;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[cluster_role::kind, cluster_role_binding::kind, role::kind, role_binding::kind];
