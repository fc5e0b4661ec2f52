//! SelfSubjectReview: returns the user of the request.

use crate::kind::{Kind, VirtualKind};

pub fn kind() -> Kind {
    Kind::question(
        "authentication.k8s.io",
        "v1",
        "SelfSubjectReview",
        "selfsubjectreviews",
        VirtualKind::SelfSubjectReview,
    )
}
