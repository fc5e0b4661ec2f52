//! ResourceSlice: devices of a pool.

use machinery::meta::Scope;

use crate::kind::Kind;

/// The row of ResourceSlice.
pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        returns_deleted: true,
        ..Kind::stored("resource.k8s.io", "v1", "ResourceSlice", "resourceslices")
            .with_beta("v1beta2")
            .with_beta("v1beta1")
    }
}
