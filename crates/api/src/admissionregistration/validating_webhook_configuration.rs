//! ValidatingWebhookConfiguration: webhooks that validate objects during admission.

use std::sync::Arc;

use apimachinery::At;
use apimachinery::meta::Scope;

use super::webhooks::Webhooks;
use crate::field_rules::{column, count_cell};
use crate::kind::{Kind, UpdateChecks, age_column, name_column, names};

pub fn kind() -> Kind {
    Kind {
        categories: names(&["api-extensions"]),
        scope: Scope::Cluster,
        unconditional_update: false,
        rules: Arc::new(Webhooks::Validating),
        update_checks: UpdateChecks { whole: 1, change: 0 },
        qualified_finalizers: false,
        ..Kind::stored(
            "admissionregistration.k8s.io",
            "v1",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
        )
    }
    .with_columns(&[
        name_column(),
        column("Webhooks", "integer", "Number of webhooks.", |object, _| count_cell(&At::root(object).get("webhooks"))),
        age_column(),
    ])
}
