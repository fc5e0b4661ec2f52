//! SelfSubjectAccessReview: may I do that.

use std::sync::Arc;

use super::reviews::Review;
use crate::kind::{Kind, Question};

/// The row of SelfSubjectAccessReview.
pub fn kind() -> Kind {
    Kind {
        rules: Arc::new(Review::SelfSubject),
        ..Kind::question(
            "authorization.k8s.io",
            "v1",
            "SelfSubjectAccessReview",
            "selfsubjectaccessreviews",
            Question::SelfSubjectAccessReview,
        )
    }
}
