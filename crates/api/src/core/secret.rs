//! Secret: what must not be seen by everyone.

use crate::kind::Kind;

/// The row of Secret.
pub fn kind() -> Kind {
    Kind::stored("", "v1", "Secret", "secrets")
}
