//! ClusterTrustBundle: certificates to trust.

use machinery::meta::Scope;

use crate::kind::Kind;

/// The row of ClusterTrustBundle.
pub fn kind() -> Kind {
    let mut kind = Kind {
        scope: Scope::Cluster,
        ..Kind::stored("certificates.k8s.io", "v1beta1", "ClusterTrustBundle", "clustertrustbundles")
            .with_beta("v1alpha1")
    };
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}
