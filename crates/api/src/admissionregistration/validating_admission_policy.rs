//! ValidatingAdmissionPolicy: expressions that judge objects.

use machinery::meta::Scope;

use crate::kind::{Kind, Subresource, names};

/// The row of ValidatingAdmissionPolicy.
pub fn kind() -> Kind {
    Kind {
        categories: names(&["api-extensions"]),
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        ..Kind::stored("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
    }
}
