//! DeviceClass: selects and configures a class of devices.

use std::sync::Arc;

use apimachinery::meta::Scope;
use apimachinery::{At, Errors, Value};

use super::common::{self, Age};
use crate::core::resource_names::is_extended;
use crate::field_rules::{raise_generation, same, start_generation};
use crate::kind::{Context, Kind, Rules, UpdateChecks, age_column, name_column};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        returns_deleted: true,
        update_checks: UpdateChecks { whole: 1, change: 1 },
        rules: Arc::new(DeviceClass),
        ..Kind::stored("resource.k8s.io", "v1", "DeviceClass", "deviceclasses")
            .with_beta("v1beta2")
            .with_beta("v1beta1")
    }
    .with_columns(&[name_column(), age_column()])
}

#[derive(Debug)]
struct DeviceClass;

impl Rules for DeviceClass {
    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, _context: &Context<'_>) {
        raise_generation(object, old, &["spec"]);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        validate_spec(&root.get("spec"), None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        validate_spec(&root.get("spec"), old.get("spec"), errors);
    }
}

fn validate_spec(spec: &At<'_>, old: Option<&Value>, errors: &mut Errors) {
    let age = |field: &str| {
        let before = old.map(|old| old.get(field).unwrap_or(&Value::Null));
        if before.is_some_and(|before| same(before, spec.get(field).value())) { Age::Stored } else { Age::New }
    };
    common::selectors(&spec.get("selectors"), age("selectors"), errors);
    common::configurations(&spec.get("config"), age("config"), errors);
    let name = spec.get("extendedResourceName");
    if name.is_present() && !is_extended(name.str()) {
        errors.push(name.invalid("must be a valid extended resource name"));
    }
}
