//! MutatingAdmissionPolicyBinding: applies a MutatingAdmissionPolicy to resources, with parameters.

use std::sync::Arc;

use apimachinery::meta::Scope;
use apimachinery::{At, Errors, Value};

use super::binding;
use crate::field_rules::{raise_generation, start_generation};
use crate::kind::{Context, Kind, Rules, UpdateChecks, names};

pub fn kind() -> Kind {
    Kind {
        categories: names(&["api-extensions"]),
        scope: Scope::Cluster,
        update_checks: UpdateChecks { whole: 1, change: 0 },
        unconditional_update: false,
        rules: Arc::new(MutatingAdmissionPolicyBinding),
        persistence: super::stored_as_beta("mutatingadmissionpolicybindings"),
        ..Kind::stored(
            "admissionregistration.k8s.io",
            "v1",
            "MutatingAdmissionPolicyBinding",
            "mutatingadmissionpolicybindings",
        )
        .with_beta("v1beta1")
        .with_beta("v1alpha1")
    }
    .with_columns(&binding::columns())
}

#[derive(Debug)]
struct MutatingAdmissionPolicyBinding;

impl Rules for MutatingAdmissionPolicyBinding {
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
    }
}
