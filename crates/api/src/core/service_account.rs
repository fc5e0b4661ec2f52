//! ServiceAccount: an identity for pods.

use std::sync::Arc;

use apimachinery::meta::Meta;
use apimachinery::{At, Value};

use crate::field_rules::{column, count_cell};
use crate::kind::{Context, Kind, Rules, Subresource, SubresourceAction, UpdateChecks, age_column, name_column, names};

const MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

pub fn kind() -> Kind {
    Kind {
        short_names: names(&["sa"]),
        subresources: vec![Subresource::action(
            "token",
            ("authentication.k8s.io", "v1", "TokenRequest"),
            SubresourceAction::Token,
        )],
        returns_deleted: true,
        update_checks: UpdateChecks { whole: 1, change: 1 },
        rules: Arc::new(ServiceAccount),
        ..Kind::stored("", "v1", "ServiceAccount", "serviceaccounts")
    }
    .with_columns(&[
        name_column(),
        column("Secrets", "string", "Number of secrets that pods may mount.", |object, _| {
            count_cell(&At::root(object).get("secrets"))
        }),
        age_column(),
    ])
}

#[derive(Debug)]
struct ServiceAccount;

impl Rules for ServiceAccount {
    fn warnings(&self, object: &Value, old: Option<&Value>, _context: &Context<'_>) -> Vec<String> {
        let enforces = |object: &Value| Meta::of(object).annotation(MOUNTABLE_SECRETS).is_some();
        if enforces(object) && !old.is_some_and(enforces) {
            return vec![format!(
                "metadata.annotations[{MOUNTABLE_SECRETS}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
            )];
        }
        Vec::new()
    }
}
