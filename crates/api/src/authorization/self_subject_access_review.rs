//! SelfSubjectAccessReview: checks whether the requesting user may perform an action.

use std::sync::Arc;

use super::reviews::Review;
use crate::kind::{Kind, VirtualKind};

pub fn kind() -> Kind {
    Kind {
        rules: Arc::new(Review::SelfSubject),
        ..Kind::question(
            "authorization.k8s.io",
            "v1",
            "SelfSubjectAccessReview",
            "selfsubjectaccessreviews",
            VirtualKind::SelfSubjectAccessReview,
        )
    }
}
