//! StatefulSet: pods with names and storage of their own.

use crate::kind::{Kind, Subresource, names};

/// The row of StatefulSet.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["sts"]),
        categories: names(&["all"]),
        subresources: vec![Subresource::scale(), Subresource::status()],
        ..Kind::stored("apps", "v1", "StatefulSet", "statefulsets")
    }
}
