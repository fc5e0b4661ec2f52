//! PersistentVolumeClaim: a wish for storage.

use crate::kind::{Kind, Subresource, names};

/// The row of PersistentVolumeClaim.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["pvc"]),
        subresources: vec![Subresource::status()],
        returns_deleted: true,
        ..Kind::stored("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
    }
}
