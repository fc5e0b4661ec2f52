//! MutatingAdmissionPolicy: expressions that change objects.

use machinery::meta::Scope;

use crate::kind::{Kind, names};

/// The row of MutatingAdmissionPolicy.
pub fn kind() -> Kind {
    Kind {
        categories: names(&["api-extensions"]),
        scope: Scope::Cluster,
        ..Kind::stored("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies")
            .with_beta("v1beta1")
            .with_beta("v1alpha1")
    }
}
