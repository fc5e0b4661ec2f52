//! DaemonSet: one pod on every node.

use crate::kind::{Kind, Subresource, names};

/// The row of DaemonSet.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["ds"]),
        categories: names(&["all"]),
        subresources: vec![Subresource::status()],
        ..Kind::stored("apps", "v1", "DaemonSet", "daemonsets")
    }
}
