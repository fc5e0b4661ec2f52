//! DeviceTaintRule: adds a taint to selected devices.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{self, Scope};
use apimachinery::{At, Errors, Value, names};

use super::common;
use crate::field_rules::{
    default_to, driver_name, drop_field, keep, keep_for_status, looks, raise_generation, reset_with_metadata,
    start_generation,
};
use crate::kind::{Context, Kind, Rules, Subresource, age_column, name_column};

const CONDITIONS_MAX: usize = 8;

pub fn kind() -> Kind {
    let mut kind = Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        rules: Arc::new(DeviceTaintRule),
        ..Kind::stored("resource.k8s.io", "v1beta2", "DeviceTaintRule", "devicetaintrules").with_beta("v1alpha3")
    }
    .with_columns(&[name_column(), age_column()]);
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}

#[derive(Debug)]
struct DeviceTaintRule;

impl Rules for DeviceTaintRule {
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        reset_with_metadata(subresource)
    }

    fn prepare_create(&self, object: &mut Value, context: &Context<'_>) {
        drop_field(object, "status");
        set_time(object, context);
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if context.subresource == "status" {
            return keep_for_status(object, old);
        }
        keep(object, old, "status");
        set_time(object, context);
        raise_generation(object, old, &["spec"]);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        let selector = spec.get("deviceSelector");
        if selector.get("driver").is_present() {
            driver_name(&selector.get("driver"), errors);
        }
        if selector.get("pool").is_present() {
            common::pool_name(&selector.get("pool"), errors);
        }
        if selector.get("device").is_present() {
            looks(&selector.get("device"), names::dns1123_label, errors);
        }
        common::taint(&spec.get("taint"), errors);
    }

    fn validate_update(&self, object: &Value, _old: &Value, context: &Context<'_>, errors: &mut Errors) {
        if context.subresource != "status" {
            return self.validate(object, context, errors);
        }
        let root = At::root(object);
        let status = root.get("status");
        let conditions = status.get("conditions");
        meta::validate_conditions(conditions.list(), conditions.path(), errors);
        if conditions.len() > CONDITIONS_MAX {
            errors.push(Error::too_many(conditions.path(), conditions.len(), CONDITIONS_MAX));
        }
    }
}

/// Sets a missing `timeAdded` of the taint to now.
fn set_time(object: &mut Value, context: &Context<'_>) {
    if let Some(taint) = object.get_mut("spec").and_then(|spec| spec.get_mut("taint")) {
        default_to(taint, "timeAdded", context.now.to_seconds().to_string());
    }
}
