//! SelfSubjectAccessReview: may I do that.

use crate::kind::{Kind, Question};

/// The row of SelfSubjectAccessReview.
pub fn kind() -> Kind {
    Kind::question(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        Question::SelfSubjectAccessReview,
    )
}
