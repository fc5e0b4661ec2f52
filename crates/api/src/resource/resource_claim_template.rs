//! ResourceClaimTemplate: what a claim made from it will be.

use crate::kind::Kind;

/// The row of ResourceClaimTemplate.
pub fn kind() -> Kind {
    Kind::stored("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates")
        .with_beta("v1beta2")
        .with_beta("v1beta1")
}
