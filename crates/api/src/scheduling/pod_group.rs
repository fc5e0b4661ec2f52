//! PodGroup: pods scheduled together.

use crate::kind::{Kind, Subresource};

/// The row of PodGroup.
pub fn kind() -> Kind {
    let mut kind = Kind {
        subresources: vec![Subresource::status()],
        ..Kind::stored("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups")
    };
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}
