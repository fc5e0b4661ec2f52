//! TokenReview: authenticates a bearer token.

use crate::kind::{Kind, VirtualKind};

pub fn kind() -> Kind {
    Kind::question("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", VirtualKind::TokenReview)
}
