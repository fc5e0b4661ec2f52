//! PodCertificateRequest: a pod's wish for a certificate.

use crate::kind::{Kind, Subresource};

/// The row of PodCertificateRequest.
pub fn kind() -> Kind {
    let mut kind = Kind {
        subresources: vec![Subresource::status()],
        ..Kind::stored("certificates.k8s.io", "v1beta1", "PodCertificateRequest", "podcertificaterequests")
    };
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}
