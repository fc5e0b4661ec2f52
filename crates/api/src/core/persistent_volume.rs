//! PersistentVolume: a piece of storage.

use machinery::meta::Scope;

use crate::kind::{Kind, Subresource, names};

/// The row of PersistentVolume.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["pv"]),
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        returns_deleted: true,
        ..Kind::stored("", "v1", "PersistentVolume", "persistentvolumes")
    }
}
