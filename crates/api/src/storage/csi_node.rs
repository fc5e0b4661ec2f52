//! CSINode: the storage drivers of a node.

use machinery::meta::Scope;

use crate::kind::Kind;

/// The row of CSINode.
pub fn kind() -> Kind {
    Kind { scope: Scope::Cluster, ..Kind::stored("storage.k8s.io", "v1", "CSINode", "csinodes") }
}
