//! PersistentVolumeClaim: a request for storage.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::Meta;
use apimachinery::quantity::Quantity;
use apimachinery::{At, Errors, Object, Value, names};

use crate::core::access_modes;
use crate::field_rules::{
    column, default_empty_to, default_to, immutable, keep, keep_all_but, label_selector, looks, quantity, same,
    wide_column,
};
use crate::go_form;
use crate::kind::{Context, Kind, Rules, Subresource, UpdateChecks, age_column, name_column, names as strings};

/// Deprecated annotation for the storage class.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

const IMMUTABLE_SPEC: &str =
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

pub fn kind() -> Kind {
    Kind {
        short_names: strings(&["pvc"]),
        subresources: vec![Subresource::status()],
        returns_deleted: true,
        rules: Arc::new(PersistentVolumeClaim),
        update_checks: UpdateChecks { whole: 1, change: 1 },
        ..Kind::stored("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
    }
    .with_columns(&[
        name_column(),
        column("Status", "string", "Phase of the claim.", |object, _| phase(object).into()),
        column("Volume", "string", "Bound PersistentVolume.", |object, _| {
            object.text_at(&["spec", "volumeName"]).into()
        }),
        column("Capacity", "string", "Capacity of the volume.", |object, _| capacity(object).into()),
        column("Access Modes", "string", "Access modes of the volume.", |object, _| modes(object).into()),
        column("StorageClass", "string", "StorageClass of the volumes.", |object, _| class(object).into()),
        column("VolumeAttributesClass", "string", "VolumeAttributesClass of the volume.", |object, _| {
            object.str_at(&["spec", "volumeAttributesClassName"]).unwrap_or("<unset>").into()
        }),
        age_column(),
        wide_column("VolumeMode", "string", "Filesystem or Block.", |object, _| {
            object.str_at(&["spec", "volumeMode"]).unwrap_or("<unset>").into()
        }),
    ])
}

#[derive(Debug)]
struct PersistentVolumeClaim;

impl Rules for PersistentVolumeClaim {
    fn default(&self, object: &mut Value, _version: &str) {
        let Some(claim) = object.as_object_mut() else { return };
        default_empty_to(claim.get_or_insert_with("status", Value::object), "phase", "Pending");
        default_spec(claim.get_or_insert_with("spec", Value::object));
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        let Some(claim) = object.as_object_mut() else { return };
        claim.insert("status", Object::from_iter([("phase", "Pending")]));
        if let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) {
            drop_unknown_source(spec);
            normalize_sources(spec);
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if context.subresource == "status" {
            keep_all_but(object, old, "status");
            return;
        }
        keep(object, old, "status");
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            if old.at(&["spec", "dataSource"]).is_none_or(Value::is_null) {
                drop_unknown_source(spec);
            }
            normalize_sources(spec);
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        validate_spec(&root.get("spec"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        if context.subresource == "status" {
            validate_status(object, errors);
            return;
        }
        self.validate(object, context, errors);
        validate_spec_update(object, old, context, errors);
    }
}

/// Defaults a claim spec, also when embedded in other kinds.
pub fn default_spec(spec: &mut Value) {
    default_to(spec, "volumeMode", "Filesystem");
}

/// Validates a claim spec, also when embedded in other kinds.
pub fn validate_spec(spec: &At<'_>, errors: &mut Errors) {
    let modes = spec.get("accessModes");
    if modes.is_empty() {
        errors.push(modes.required("at least 1 access mode is required"));
    }
    label_selector(&spec.get("selector"), errors);
    access_modes::validate(&modes, errors);
    let resources = spec.get("resources");
    let requests = resources.get("requests");
    let storage = requests.get("storage");
    let blamed = resources.entry("storage");
    if storage.is_absent() {
        errors.push(blamed.required(""));
    } else if quantity(storage.value()) <= Quantity::ZERO {
        let bad_value = quantity(storage.value()).to_string();
        errors.push(Error::invalid(blamed.path(), bad_value, "must be greater than zero"));
    }
    for class in ["storageClassName", "volumeAttributesClassName"] {
        if class == "volumeAttributesClassName" {
            access_modes::validate_volume_mode(&spec.get("volumeMode"), errors);
            for source in ["dataSource", "dataSourceRef"] {
                validate_source(&spec.get(source), errors);
            }
        }
        if !spec.get(class).is_empty() {
            looks(&spec.get(class), names::dns1123_subdomain, errors);
        }
    }
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    if source.is_present() && reference.is_present() && reference.get("namespace").is_empty() {
        let equal = ["apiGroup", "kind", "name"].iter().all(|f| source.get(f).str() == reference.get(f).str());
        if !equal {
            // Upstream reports the field path as the value.
            errors.push(Error::invalid(spec.path(), source.path().to_string(), "must match dataSourceRef"));
        }
    }
}

fn validate_source(source: &At<'_>, errors: &mut Errors) {
    if source.is_absent() {
        return;
    }
    for field in ["name", "kind"] {
        if source.get(field).is_empty() {
            errors.push(source.get(field).required(""));
        }
    }
    let (group, kind) = (source.get("apiGroup"), source.get("kind"));
    if group.is_empty() && kind.str() != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(Error::invalid(source.path(), kind.str(), detail));
    }
    if !group.is_empty() {
        looks(&group, names::dns1123_subdomain, errors);
    }
    let namespace = source.get("namespace");
    if !namespace.is_empty() {
        looks(&namespace, names::dns1123_label, errors);
    }
}

fn validate_spec_update(object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
    let (root, before) = (At::root(object), At::root(old));
    let (mut new_spec, mut old_spec) = (root.get("spec").value().clone(), before.get("spec").value().clone());
    allow_changes(object, old, &mut new_spec, &mut old_spec);
    let spec = root.get("spec");
    if !same(&new_spec, &old_spec) {
        let schema = context.version.schema().child("spec");
        let difference = schema.map(|schema| go_form::difference(&old_spec, &new_spec, schema)).unwrap_or_default();
        errors.push(spec.forbidden(format!("{IMMUTABLE_SPEC}\n{difference}")));
    }
    let size = |of: &Value, path: &[&str]| of.at(path).map_or(Quantity::ZERO, quantity);
    let storage_path = ["spec", "resources", "requests", "storage"];
    let (new_size, old_size) = (size(object, &storage_path), size(old, &storage_path));
    if new_size < old_size && new_size <= size(old, &["status", "capacity", "storage"]) {
        let resources = spec.get("resources");
        let requests = resources.get("requests");
        errors.push(requests.get("storage").forbidden("field can not be less than status.capacity"));
    }
    let had = before.get("spec");
    immutable(
        &At::new(spec.get("volumeMode").value(), apimachinery::Path::of("volumeMode")),
        &had.get("volumeMode"),
        errors,
    );
    let (class, class_before) = (spec.get("volumeAttributesClassName"), had.get("volumeAttributesClassName"));
    if class_before.is_present() && class.is_absent() {
        errors.push(class.forbidden("update from non-nil value to nil is forbidden"));
    } else if !class_before.is_empty() && class.is_empty() {
        errors.push(class.forbidden("update from non-nil value to an empty string is forbidden"));
    }
}

/// Copies the fields that may change: volume and class if unset, size and attributes class of a bound claim.
fn allow_changes(object: &Value, old: &Value, new_spec: &mut Value, old_spec: &mut Value) {
    if old.text_at(&["spec", "volumeName"]).is_empty() {
        keep(old_spec, &new_spec.clone(), "volumeName");
    }
    let class = |of: &Value| of.at(&["spec", "storageClassName"]).is_some_and(|class| !class.is_null());
    if !class(old) && class(object) && Meta::of(old).annotation(CLASS_ANNOTATION).is_none() {
        keep(new_spec, old_spec, "storageClassName");
    }
    if object.text_at(&["status", "phase"]) == "Bound" {
        let had = old.at(&["spec", "resources", "requests"]).cloned().unwrap_or(Value::Null);
        if let Some(requests) = new_spec.get_mut("resources").and_then(|resources| resources.get_mut("requests")) {
            keep(requests, &had, "storage");
        }
        keep(new_spec, old_spec, "volumeAttributesClassName");
    }
}

fn validate_status(object: &Value, errors: &mut Errors) {
    let root = At::root(object);
    let status = root.get("status");
    for field in ["capacity", "allocatedResources"] {
        let amounts = status.get(field);
        for (_, amount) in amounts.entries() {
            let value = quantity(amount.value());
            if value.is_negative() {
                errors.push(Error::invalid(amount.path(), value.value(), "must be a valid resource quantity"));
            }
        }
    }
}

/// Drops a `dataSource` that is neither a claim nor a snapshot.
fn drop_unknown_source(spec: &mut Object) {
    let known = spec.get("dataSource").is_none_or(|source| {
        matches!(
            (source.text_at(&["apiGroup"]), source.text_at(&["kind"])),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    });
    if !known {
        spec.remove("dataSource");
    }
}

/// Sets `dataSource` and `dataSourceRef` to the same value if only one is set. A reference to another namespace is not
/// copied.
fn normalize_sources(spec: &mut Object) {
    let set = |spec: &Object, field: &str| spec.get(field).filter(|value| !value.is_null()).cloned();
    match (set(spec, "dataSource"), set(spec, "dataSourceRef")) {
        (Some(source), None) => drop(spec.insert("dataSourceRef", source)),
        (None, Some(reference)) if reference.text_at(&["namespace"]).is_empty() => {
            spec.insert("dataSource", reference);
        }
        _ => {}
    }
}

fn phase(object: &Value) -> &str {
    if Meta::of(object).is_deleting() { "Terminating" } else { object.text_at(&["status", "phase"]) }
}

fn is_bound(object: &Value) -> bool {
    !object.text_at(&["spec", "volumeName"]).is_empty()
}

fn capacity(object: &Value) -> String {
    let amount = object.at(&["status", "capacity", "storage"]).map_or(Quantity::ZERO, quantity);
    if is_bound(object) { amount.to_string() } else { String::new() }
}

fn modes(object: &Value) -> String {
    let root = At::root(object);
    let status = root.get("status");
    if is_bound(object) { access_modes::shortened(&status.get("accessModes")) } else { String::new() }
}

fn class(object: &Value) -> &str {
    Meta::of(object).annotation(CLASS_ANNOTATION).unwrap_or_else(|| object.text_at(&["spec", "storageClassName"]))
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::validation;

    fn claim(phase: &str, size: &str, capacity: &str) -> Value {
        value!({
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, "volumeName": "v"},
            "status": {"phase": phase, "capacity": {"storage": capacity}}
        })
    }

    fn check(new: &Value, old: &Value, expect: &[&str]) {
        let (_, errors) = validation::update(&kind(), "", new, old);
        let heads: Vec<_> = errors.iter().map(|line| line.lines().next().unwrap_or_default()).collect();
        assert_eq!(heads, expect);
    }

    #[test]
    fn bound_claim_can_grow_and_shrink_to_above_its_capacity() {
        let old = claim("Bound", "2Gi", "1Gi");
        check(&claim("Bound", "3Gi", "1Gi"), &old, &[]);
        check(&claim("Bound", "1.5Gi", "1Gi"), &old, &[]);
        check(
            &claim("Bound", "1Gi", "1Gi"),
            &old,
            &["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"],
        );
    }

    #[test]
    fn unbound_claim_spec_is_immutable() {
        let old = claim("Pending", "2Gi", "0");
        let expected = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        check(&claim("Pending", "3Gi", "0"), &old, &[expected]);
    }

    #[test]
    fn data_source_and_data_source_ref_are_synchronized() {
        let mut object = value!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "a"}}});
        let spec = object.get_mut("spec").and_then(Value::as_object_mut).unwrap();
        normalize_sources(spec);
        assert_eq!(object["spec"]["dataSourceRef"], object["spec"]["dataSource"]);
    }
}
