//! ReplicaSet: so many pods of a template.

use crate::kind::{Kind, Subresource, names};

/// The row of ReplicaSet.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["rs"]),
        categories: names(&["all"]),
        subresources: vec![Subresource::scale(), Subresource::status()],
        ..Kind::stored("apps", "v1", "ReplicaSet", "replicasets")
    }
}
