//! CSIStorageCapacity: how much storage there is where.

use crate::kind::Kind;

/// The row of CSIStorageCapacity.
pub fn kind() -> Kind {
    Kind::stored("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities")
}
