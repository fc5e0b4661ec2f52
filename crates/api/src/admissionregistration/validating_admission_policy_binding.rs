//! ValidatingAdmissionPolicyBinding: applies a ValidatingAdmissionPolicy to resources, with parameters.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::meta::Scope;
use apimachinery::{At, Errors, Value};

use super::binding;
use crate::field_rules::{one_of, raise_generation, start_generation};
use crate::kind::{Context, Kind, Rules, UpdateChecks, names};

pub fn kind() -> Kind {
    Kind {
        categories: names(&["api-extensions"]),
        scope: Scope::Cluster,
        unconditional_update: false,
        rules: Arc::new(ValidatingAdmissionPolicyBinding),
        update_checks: UpdateChecks { whole: 1, change: 0 },
        qualified_finalizers: false,
        ..Kind::stored(
            "admissionregistration.k8s.io",
            "v1",
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
        )
    }
    .with_columns(&binding::columns())
}

#[derive(Debug)]
struct ValidatingAdmissionPolicyBinding;

impl Rules for ValidatingAdmissionPolicyBinding {
    fn default(&self, object: &mut Value, _version: &str) {
        binding::default(object);
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, _context: &Context<'_>) {
        raise_generation(object, old, &["spec"]);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        binding::validate(&spec, errors);
        let actions = spec.get("validationActions");
        validate_actions(&actions, errors);
    }
}

fn validate_actions(actions: &At<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for action in actions.items() {
        one_of(&action, &["Audit", "Deny", "Warn"], errors);
        if !seen.insert(action.str()) {
            errors.push(action.duplicate());
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        errors.push(actions.invalid("must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"));
    }
    if seen.is_empty() {
        errors.push(actions.required("at least one validation action is required"));
    }
}
