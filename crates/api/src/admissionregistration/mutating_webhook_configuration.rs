//! MutatingWebhookConfiguration: services that change objects.

use machinery::meta::Scope;

use crate::kind::{Kind, names};

/// The row of MutatingWebhookConfiguration.
pub fn kind() -> Kind {
    Kind {
        categories: names(&["api-extensions"]),
        scope: Scope::Cluster,
        ..Kind::stored(
            "admissionregistration.k8s.io",
            "v1",
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
        )
    }
}
