//! VolumeAttributesClass: a sort of volume attributes.

use machinery::meta::Scope;

use crate::kind::{Kind, names};

/// The row of VolumeAttributesClass.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["vac"]),
        scope: Scope::Cluster,
        returns_deleted: true,
        ..Kind::stored("storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses").with_beta("v1beta1")
    }
}
