//! SubjectAccessReview: checks whether a user may perform an action.

use std::sync::Arc;

use super::reviews::Review;
use crate::kind::{Kind, VirtualKind};

pub fn kind() -> Kind {
    Kind {
        rules: Arc::new(Review::Subject),
        ..Kind::question(
            "authorization.k8s.io",
            "v1",
            "SubjectAccessReview",
            "subjectaccessreviews",
            VirtualKind::SubjectAccessReview,
        )
    }
}
