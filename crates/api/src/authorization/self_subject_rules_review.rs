//! SelfSubjectRulesReview: what may I do.

use crate::kind::{Kind, Question};

/// The row of SelfSubjectRulesReview.
pub fn kind() -> Kind {
    Kind::question(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        Question::SelfSubjectRulesReview,
    )
}
