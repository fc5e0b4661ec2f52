//! PodTemplate: what a pod made from it will be.

use crate::kind::Kind;

/// The row of PodTemplate.
pub fn kind() -> Kind {
    Kind { returns_deleted: true, ..Kind::stored("", "v1", "PodTemplate", "podtemplates") }
}
