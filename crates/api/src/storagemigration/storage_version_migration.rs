//! StorageVersionMigration: rewriting what is stored in an old version.

use machinery::meta::Scope;

use crate::kind::{Kind, Subresource};

/// The row of StorageVersionMigration.
pub fn kind() -> Kind {
    let mut kind = Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        ..Kind::stored("storagemigration.k8s.io", "v1beta1", "StorageVersionMigration", "storageversionmigrations")
    };
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}
