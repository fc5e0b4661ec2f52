//! TokenReview: authenticates a bearer token.

use crate::kind::{Kind, Question};

pub fn kind() -> Kind {
    Kind::question("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", Question::TokenReview)
}
