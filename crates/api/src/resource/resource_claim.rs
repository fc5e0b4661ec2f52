//! ResourceClaim: a wish for devices.

use crate::kind::{Kind, Subresource};

/// The row of ResourceClaim.
pub fn kind() -> Kind {
    Kind {
        subresources: vec![Subresource::status()],
        returns_deleted: true,
        ..Kind::stored("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
            .with_beta("v1beta2")
            .with_beta("v1beta1")
    }
}
