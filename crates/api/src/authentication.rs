//! API kinds of the authentication.k8s.io group.

pub mod self_subject_review;
pub mod token_review;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[self_subject_review::kind, token_review::kind];
