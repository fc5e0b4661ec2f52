//! ResourcePoolStatusRequest: a question about a pool of devices.

use machinery::meta::Scope;

use crate::kind::{Kind, Subresource};

/// The row of ResourcePoolStatusRequest.
pub fn kind() -> Kind {
    let mut kind = Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        ..Kind::stored("resource.k8s.io", "v1alpha3", "ResourcePoolStatusRequest", "resourcepoolstatusrequests")
    };
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}
