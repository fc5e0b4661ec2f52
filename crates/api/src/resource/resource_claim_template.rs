//! ResourceClaimTemplate: a template for per-pod ResourceClaims.

use std::sync::Arc;

use apimachinery::meta;
use apimachinery::{At, Errors, Value};

use super::common::Age;
use super::{claim, conversion};
use crate::field_rules::immutable_with_value;
use crate::go_form;
use crate::kind::{Context, Kind, Rules, UpdateChecks, age_column, name_column};

pub fn kind() -> Kind {
    let row = Kind {
        update_checks: UpdateChecks { whole: 1, change: 1 },
        rules: Arc::new(ResourceClaimTemplate),
        ..Kind::stored("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates")
            .with_beta("v1beta2")
            .with_beta("v1beta1")
    };
    conversion::with_v1beta1(row, conversion::TEMPLATE).with_columns(&[name_column(), age_column()])
}

#[derive(Debug)]
struct ResourceClaimTemplate;

impl Rules for ResourceClaimTemplate {
    fn default(&self, object: &mut Value, version: &str) {
        if let Some(spec) = object.get_mut("spec").and_then(|spec| spec.get_mut("spec")) {
            claim::default(spec, version);
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        validate_spec(&root.get("spec"), Age::New, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let (root, before) = (At::root(object), At::root(old));
        let spec = root.get("spec");
        validate_spec(&spec, Age::Stored, errors);
        let of = ("resource.k8s.io", "ResourceClaimTemplate");
        let bad_value = || go_form::stored_bad_value(&spec, &before.get("spec"), of, "spec");
        immutable_with_value(&spec, &before.get("spec"), bad_value, errors);
    }
}

fn validate_spec(spec: &At<'_>, age: Age, errors: &mut Errors) {
    let metadata = spec.get("metadata");
    for (field, rule) in [
        ("annotations", meta::validate_annotations as fn(&apimachinery::Object, &apimachinery::Path<'_>, &mut Errors)),
        ("labels", meta::validate_labels),
    ] {
        if let Some(entries) = metadata.get(field).value().as_object() {
            rule(entries, metadata.get(field).path(), errors);
        }
    }
    claim::validate(&spec.get("spec"), age, errors);
}
