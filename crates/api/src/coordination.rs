//! The kinds of coordination.k8s.io.

pub mod lease;
pub mod lease_candidate;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[lease::kind, lease_candidate::kind];
