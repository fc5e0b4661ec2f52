//! LocalSubjectAccessReview: may this subject do that in this namespace.

use std::sync::Arc;

use machinery::meta::Scope;

use super::reviews::Review;
use crate::kind::{Kind, Question};

/// The row of LocalSubjectAccessReview.
pub fn kind() -> Kind {
    Kind {
        scope: Scope::Namespaced,
        rules: Arc::new(Review::LocalSubject),
        ..Kind::question(
            "authorization.k8s.io",
            "v1",
            "LocalSubjectAccessReview",
            "localsubjectaccessreviews",
            Question::LocalSubjectAccessReview,
        )
    }
}
