//! API kinds of the authorization.k8s.io group.

pub mod local_subject_access_review;
mod reviews;
pub mod self_subject_access_review;
pub mod self_subject_rules_review;
pub mod subject_access_review;

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[
    local_subject_access_review::kind,
    self_subject_access_review::kind,
    self_subject_rules_review::kind,
    subject_access_review::kind,
];
