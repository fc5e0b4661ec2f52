//! ResourceClaim: a request for devices.

use std::sync::Arc;

use apimachinery::meta::Meta;
use apimachinery::{At, Errors, Value};

use super::common::Age;
use super::{allocation, claim, conversion};
use crate::field_rules::{column, drop_field, immutable_with_value, keep, keep_for_status, reset_with_metadata};
use crate::go_form;
use crate::kind::{Context, Kind, Rules, Subresource, UpdateChecks, age_column, name_column};

pub fn kind() -> Kind {
    let row = Kind {
        subresources: vec![Subresource::status()],
        returns_deleted: true,
        update_checks: UpdateChecks { whole: 1, change: 1 },
        rules: Arc::new(ResourceClaim),
        ..Kind::stored("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
            .with_beta("v1beta2")
            .with_beta("v1beta1")
    };
    conversion::with_v1beta1(row, conversion::CLAIM).with_columns(&[
        name_column(),
        column("State", "string", "State of the object.", |object, _| state(object).into()),
        age_column(),
    ])
}

#[derive(Debug)]
struct ResourceClaim;

impl Rules for ResourceClaim {
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        reset_with_metadata(subresource)
    }

    fn default(&self, object: &mut Value, version: &str) {
        if let Some(spec) = object.get_mut("spec") {
            claim::default(spec, version);
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        drop_field(object, "status");
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        match context.subresource {
            "status" => keep_for_status(object, old),
            _ => keep(object, old, "status"),
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        claim::validate(&At::root(object).get("spec"), Age::New, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        if context.subresource == "status" {
            return allocation::validate(object, old, context, errors);
        }
        let (root, before) = (At::root(object), At::root(old));
        let spec = root.get("spec");
        let bad_value =
            || go_form::stored_bad_value(&spec, &before.get("spec"), ("resource.k8s.io", "ResourceClaim"), "spec");
        immutable_with_value(&spec, &before.get("spec"), bad_value, errors);
    }
}

fn state(object: &Value) -> String {
    let deleting = Meta::of(object).is_deleting();
    let mut states = Vec::new();
    if deleting {
        states.push("deleted");
    }
    if object.at(&["status", "allocation"]).is_none_or(Value::is_null) {
        if !deleting {
            states.push("pending");
        }
    } else {
        states.push("allocated");
        let consumers = object.at(&["status", "reservedFor"]).and_then(Value::as_array);
        if consumers.is_some_and(|consumers| !consumers.is_empty()) {
            states.push("reserved");
        }
    }
    states.join(",")
}
