//! Lease: who leads, and until when.

use crate::kind::Kind;

/// The row of Lease.
pub fn kind() -> Kind {
    Kind { create_on_update: true, ..Kind::stored("coordination.k8s.io", "v1", "Lease", "leases") }
}
