//! RuntimeClass: a container runtime configuration.

use std::sync::Arc;

use apimachinery::meta::Scope;
use apimachinery::{At, Errors, Value, meta, names};

use crate::core::resource_names;
use crate::field_rules::{column, immutable, looks, non_negative_quantity};
use crate::kind::{Context, Kind, Rules, UpdateChecks, age_column, name_column};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        create_on_update: true,
        unconditional_update: false,
        rules: Arc::new(RuntimeClass),
        update_checks: UpdateChecks { whole: 1, change: 1 },
        qualified_finalizers: false,
        ..Kind::stored("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses")
    }
    .with_columns(&[
        name_column(),
        column("Handler", "string", "Handler of the container runtime.", |object, _| {
            object.text_at(&["handler"]).into()
        }),
        age_column(),
    ])
}

#[derive(Debug)]
struct RuntimeClass;

impl Rules for RuntimeClass {
    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let handler = root.get("handler");
        if handler.is_empty() {
            errors.push(handler.required(""));
        } else {
            looks(&handler, names::dns1123_label, errors);
        }
        let overhead = root.get("overhead");
        let fixed = overhead.get("podFixed");
        for (name, amount) in fixed.entries() {
            resource_names::validate_container(name, &amount, errors);
            non_negative_quantity(&amount, errors);
        }
        let scheduling = root.get("scheduling");
        let selector = scheduling.get("nodeSelector");
        if let Some(labels) = selector.value().as_object() {
            meta::validate_labels(labels, selector.path(), errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        self.validate(object, context, errors);
        immutable(&At::root(object).get("handler"), &At::root(old).get("handler"), errors);
    }
}
