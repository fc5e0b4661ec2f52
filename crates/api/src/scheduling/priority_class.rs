//! PriorityClass: how important a pod is.

use machinery::meta::Scope;

use crate::kind::{Kind, names};

/// The row of PriorityClass.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["pc"]),
        scope: Scope::Cluster,
        ..Kind::stored("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses")
    }
}
