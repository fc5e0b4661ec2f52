//! Workload: groups of pods that are scheduled together.

use crate::kind::Kind;

/// The row of Workload.
pub fn kind() -> Kind {
    let mut kind = Kind::stored("scheduling.k8s.io", "v1alpha2", "Workload", "workloads");
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}
