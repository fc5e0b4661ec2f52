//! ResourcePoolStatusRequest: a one-time query of the status of a driver's device pools.

use std::sync::Arc;

use apimachinery::meta::Scope;
use apimachinery::{At, Errors, Value};

use super::common;
use crate::field_rules::{
    column, driver_name, drop_field, immutable_with_value, keep, keep_for_status, reset_with_metadata,
};
use crate::go_form;
use crate::kind::{Context, Kind, Rules, Subresource, age_column, name_column};

const LIMIT_MAX: i64 = 1000;

pub fn kind() -> Kind {
    let mut kind = Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        rules: Arc::new(ResourcePoolStatusRequest),
        ..Kind::stored("resource.k8s.io", "v1alpha3", "ResourcePoolStatusRequest", "resourcepoolstatusrequests")
    }
    .with_columns(&[
        name_column(),
        column("Driver", "string", "Driver of the request.", |object, _| object.text_at(&["spec", "driver"]).into()),
        age_column(),
    ]);
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}

#[derive(Debug)]
struct ResourcePoolStatusRequest;

impl Rules for ResourcePoolStatusRequest {
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        reset_with_metadata(subresource)
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
        let root = At::root(object);
        let spec = root.get("spec");
        driver_name(&spec.get("driver"), errors);
        if spec.get("poolName").is_present() {
            common::pool_name(&spec.get("poolName"), errors);
        }
        let limit = spec.get("limit");
        if limit.is_present() && limit.int() < 1 {
            errors.push(limit.invalid("must be greater than or equal to 1"));
        }
        if limit.int() > LIMIT_MAX {
            errors.push(limit.invalid(format!("must be less than or equal to {LIMIT_MAX}")));
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        let (root, before) = (At::root(object), At::root(old));
        let spec = root.get("spec");
        let bad_value = || go_form::bad_value_at(&spec, context.version.schema(), &["spec"]);
        immutable_with_value(&spec, &before.get("spec"), bad_value, errors);
    }
}
