//! CertificateSigningRequest: a wish for a certificate.

use machinery::meta::Scope;

use crate::kind::{Kind, Subresource, names};

/// The row of CertificateSigningRequest.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["csr"]),
        scope: Scope::Cluster,
        subresources: vec![Subresource::part("approval"), Subresource::status()],
        ..Kind::stored("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests")
    }
}
