//! CSIDriver: what a storage driver needs.

use machinery::meta::Scope;

use crate::kind::Kind;

/// The row of CSIDriver.
pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        returns_deleted: true,
        ..Kind::stored("storage.k8s.io", "v1", "CSIDriver", "csidrivers")
    }
}
