//! StorageClass: a sort of storage.

use machinery::meta::Scope;

use crate::kind::{Kind, names};

/// The row of StorageClass.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["sc"]),
        scope: Scope::Cluster,
        returns_deleted: true,
        ..Kind::stored("storage.k8s.io", "v1", "StorageClass", "storageclasses")
    }
}
