//! The kinds of authorization.k8s.io.

pub mod local_subject_access_review;
mod reviews;
pub mod self_subject_access_review;
pub mod self_subject_rules_review;
pub mod subject_access_review;

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[
    local_subject_access_review::kind,
    self_subject_access_review::kind,
    self_subject_rules_review::kind,
    subject_access_review::kind,
];
