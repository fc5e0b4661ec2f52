//! LocalSubjectAccessReview: checks whether a user may perform an action in a namespace.

use std::sync::Arc;

use apimachinery::meta::Scope;

use super::reviews::Review;
use crate::kind::{Kind, VirtualKind};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Namespaced,
        rules: Arc::new(Review::LocalSubject),
        ..Kind::question(
            "authorization.k8s.io",
            "v1",
            "LocalSubjectAccessReview",
            "localsubjectaccessreviews",
            VirtualKind::LocalSubjectAccessReview,
        )
    }
}
