//! VolumeAttachment: a volume on a node.

use machinery::meta::Scope;

use crate::kind::{Kind, Subresource};

/// The row of VolumeAttachment.
pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        ..Kind::stored("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments")
    }
}
