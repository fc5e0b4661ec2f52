//! PodGroup: pods that are scheduled together.

use std::sync::Arc;

use apimachinery::{At, Errors, Value, meta, names};

use super::policy;
use crate::field_rules::{
    drop_field, immutable_with_value, keep, keep_for_status, required_and_looks, reset_with_metadata,
};
use crate::go_form;
use crate::kind::{Context, Kind, Rules, Subresource, age_column, name_column};

pub fn kind() -> Kind {
    let mut kind = Kind {
        subresources: vec![Subresource::status()],
        rules: Arc::new(PodGroup),
        ..Kind::stored("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups")
    }
    .with_columns(&[name_column(), age_column()]);
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}

#[derive(Debug)]
struct PodGroup;

impl Rules for PodGroup {
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
        let reference = spec.get("podGroupTemplateRef");
        let workload = reference.get("workload");
        if reference.is_present() && workload.is_absent() {
            errors.push(workload.required(""));
        }
        if workload.is_present() {
            required_and_looks(&workload.get("workloadName"), names::dns1123_subdomain, errors);
            required_and_looks(&workload.get("podGroupTemplateName"), names::dns1123_label, errors);
        }
        policy::validate(&spec, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        let (root, before) = (At::root(object), At::root(old));
        if context.subresource == "status" {
            let status = root.get("status");
            let conditions = status.get("conditions");
            return meta::validate_conditions(conditions.list(), conditions.path(), errors);
        }
        let spec = root.get("spec");
        let bad_value = || go_form::bad_value_at(&spec, context.version.schema(), &["spec"]);
        immutable_with_value(&spec, &before.get("spec"), bad_value, errors);
    }
}
