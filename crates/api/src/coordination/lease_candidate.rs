//! LeaseCandidate: who would lead.

use crate::kind::Kind;

/// The row of LeaseCandidate.
pub fn kind() -> Kind {
    let mut kind =
        Kind::stored("coordination.k8s.io", "v1beta1", "LeaseCandidate", "leasecandidates").with_beta("v1alpha2");
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}
