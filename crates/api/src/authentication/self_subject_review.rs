//! SelfSubjectReview: who am I.

use crate::kind::{Kind, Question};

/// The row of SelfSubjectReview.
pub fn kind() -> Kind {
    Kind::question(
        "authentication.k8s.io",
        "v1",
        "SelfSubjectReview",
        "selfsubjectreviews",
        Question::SelfSubjectReview,
    )
}
