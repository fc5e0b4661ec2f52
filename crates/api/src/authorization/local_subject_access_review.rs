//! LocalSubjectAccessReview: may this subject do that in this namespace.

use machinery::meta::Scope;

use crate::kind::{Kind, Question};

/// The row of LocalSubjectAccessReview.
pub fn kind() -> Kind {
    Kind {
        scope: Scope::Namespaced,
        ..Kind::question(
            "authorization.k8s.io",
            "v1",
            "LocalSubjectAccessReview",
            "localsubjectaccessreviews",
            Question::LocalSubjectAccessReview,
        )
    }
}
