//! TokenReview: whose token is this.

use crate::kind::{Kind, Question};

/// The row of TokenReview.
pub fn kind() -> Kind {
    Kind::question("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", Question::TokenReview)
}
