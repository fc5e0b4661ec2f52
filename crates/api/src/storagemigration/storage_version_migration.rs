//! StorageVersionMigration: rewrites all objects of a resource in the current storage version.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{self, Scope};
use apimachinery::{At, Errors, Value, names};

use crate::field_rules::{
    column, drop_field, keep, keep_for_status, looks, raise_generation, reset_with_metadata, same, start_generation,
};
use crate::kind::{Context, Kind, Rules, Subresource, age_column, name_column};

pub fn kind() -> Kind {
    let mut kind = Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        rules: Arc::new(StorageVersionMigration),
        ..Kind::stored("storagemigration.k8s.io", "v1beta1", "StorageVersionMigration", "storageversionmigrations")
    }
    .with_columns(&[
        name_column(),
        column("Resource", "string", "Resource whose objects are rewritten.", |object, _| {
            let text = |field: &str| object.text_at(&["spec", "resource", field]);
            match text("group") {
                "" => text("resource").into(),
                group => format!("{}.{group}", text("resource")).into(),
            }
        }),
        age_column(),
    ]);
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}

#[derive(Debug)]
struct StorageVersionMigration;

impl Rules for StorageVersionMigration {
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        reset_with_metadata(subresource)
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        drop_field(object, "status");
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if context.subresource == "status" {
            return keep_for_status(object, old);
        }
        keep(object, old, "status");
        raise_generation(object, old, &["spec"]);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        let resource = spec.get("resource");
        if resource.get("resource").is_empty() {
            errors.push(resource.get("resource").required("resource is required"));
        } else {
            looks(&resource.get("resource"), names::dns1123_subdomain, errors);
        }
        if !resource.get("group").is_empty() {
            looks(&resource.get("group"), names::dns1123_subdomain, errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        let (root, before) = (At::root(object), At::root(old));
        if context.subresource == "status" {
            return validate_status(&root.get("status"), &before.get("status"), errors);
        }
        self.validate(object, context, errors);
        let (spec, had) = (root.get("spec"), before.get("spec"));
        if !same(spec.get("resource").value(), had.get("resource").value()) {
            errors.push(spec.get("resource").invalid("field is immutable"));
        }
    }
}

fn validate_status(status: &At<'_>, had: &At<'_>, errors: &mut Errors) {
    let conditions = status.get("conditions");
    meta::validate_conditions(conditions.list(), conditions.path(), errors);
    let is_true = |of: &At<'_>, ty: &str| {
        of.get("conditions")
            .list()
            .iter()
            .any(|condition| condition.str_at(&["type"]) == Some(ty) && condition.str_at(&["status"]) == Some("True"))
    };
    let over: BTreeSet<_> = ["Succeeded", "Failed"].into_iter().filter(|ty| is_true(status, ty)).collect();
    if over.len() > 1 {
        errors.push(conditions.invalid("Both success and failed conditions cannot be true at the same time"));
    }
    for ty in ["Succeeded", "Failed"] {
        if is_true(had, ty) && !is_true(status, ty) {
            let detail = format!("{ty} condition cannot be set to false once it is true");
            errors.push(Error::invalid(conditions.path(), "", detail));
        }
    }
    let (version, before) = (status.get("resourceVersion"), had.get("resourceVersion"));
    if !before.is_empty() && version.str() != before.str() {
        errors.push(version.invalid("field is immutable"));
    }
}
