//! SubjectAccessReview: may this subject do that.

use crate::kind::{Kind, Question};

/// The row of SubjectAccessReview.
pub fn kind() -> Kind {
    Kind::question(
        "authorization.k8s.io",
        "v1",
        "SubjectAccessReview",
        "subjectaccessreviews",
        Question::SubjectAccessReview,
    )
}
