//! The kinds of authentication.k8s.io.

pub mod self_subject_review;
pub mod token_review;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[self_subject_review::kind, token_review::kind];
