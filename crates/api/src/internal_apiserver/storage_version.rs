//! StorageVersion: what versions the servers store.

use machinery::meta::Scope;

use crate::kind::{Kind, Subresource};

/// The row of StorageVersion.
pub fn kind() -> Kind {
    let mut kind = Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        ..Kind::stored("internal.apiserver.k8s.io", "v1alpha1", "StorageVersion", "storageversions")
    };
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}
