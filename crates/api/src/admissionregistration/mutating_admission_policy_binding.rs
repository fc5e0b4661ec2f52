//! MutatingAdmissionPolicyBinding: where a mutating policy holds.

use machinery::meta::Scope;

use crate::kind::{Kind, names};

/// The row of MutatingAdmissionPolicyBinding.
pub fn kind() -> Kind {
    Kind {
        categories: names(&["api-extensions"]),
        scope: Scope::Cluster,
        ..Kind::stored(
            "admissionregistration.k8s.io",
            "v1",
            "MutatingAdmissionPolicyBinding",
            "mutatingadmissionpolicybindings",
        )
        .with_beta("v1beta1")
        .with_beta("v1alpha1")
    }
}
