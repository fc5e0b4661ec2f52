//! SelfSubjectRulesReview: lists the actions that the requesting user may perform in a namespace.

use crate::kind::{Kind, VirtualKind};

pub fn kind() -> Kind {
    Kind::question(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        VirtualKind::SelfSubjectRulesReview,
    )
}
