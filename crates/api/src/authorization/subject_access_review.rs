//! SubjectAccessReview: may this subject do that.

use std::sync::Arc;

use super::reviews::Review;
use crate::kind::{Kind, Question};

/// The row of SubjectAccessReview.
pub fn kind() -> Kind {
    Kind {
        rules: Arc::new(Review::Subject),
        ..Kind::question(
            "authorization.k8s.io",
            "v1",
            "SubjectAccessReview",
            "subjectaccessreviews",
            Question::SubjectAccessReview,
        )
    }
}
