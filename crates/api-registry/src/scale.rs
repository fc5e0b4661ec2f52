//! The `Scale` of an object: conversion from and to its replica count.

use api::kind::{Kind, ReplicaPaths, SubresourceAction};
use apimachinery::apply::scale::ReplicasPaths;
use apimachinery::meta::Meta;
use apimachinery::status::{GroupName, Status};
use apimachinery::{At, Errors, Object, Str, Value, labels};

/// Returns the `Scale` of an object.
pub fn of(object: &Value, paths: &ReplicaPaths) -> Value {
    let mut metadata = Object::new();
    let meta = Meta::of(object);
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta.value(field) {
            metadata.insert(field, value.clone());
        }
    }
    let mut spec = Object::new();
    if let Some(replicas) = number(object, &paths.desired).filter(|replicas| *replicas != 0) {
        spec.insert("replicas", replicas);
    }
    let mut status = Object::new();
    status.insert("replicas", number(object, &paths.actual).unwrap_or_default());
    let selector = paths.selector.as_ref().and_then(|path| find(object, path)).map(selector).unwrap_or_default();
    if !selector.is_empty() {
        status.insert("selector", selector);
    }
    let mut scale = Object::new();
    scale.insert("kind", "Scale");
    scale.insert("apiVersion", "autoscaling/v1");
    scale.insert("metadata", Value::Object(metadata));
    scale.insert("spec", Value::Object(spec));
    scale.insert("status", Value::Object(status));
    Value::Object(scale)
}

/// Returns the replicas path of each version, for managedFields.
pub fn owned_paths(kind: &Kind) -> ReplicasPaths {
    ReplicasPaths::of_steps(kind.versions.iter().map(|version| {
        let desired = match kind.subresource(&version.name, "scale").map(|subresource| &subresource.does) {
            Some(SubresourceAction::Scale(paths)) => Some(paths.desired.as_slice()),
            _ => None,
        };
        (kind.gvk(&version.name).api_version().to_string(), desired)
    }))
}

/// Writes the replica count of a `Scale` into its object.
pub fn write(object: &mut Value, scale: &Value, paths: &ReplicaPaths) {
    let replicas = scale.int_at(&["spec", "replicas"]).unwrap_or_default();
    let Some((last, way)) = paths.desired.split_last() else { return };
    let mut at = object;
    for step in way {
        let Value::Object(fields) = at else { return };
        at = fields.get_or_insert_with(step, Value::object);
    }
    if let Value::Object(fields) = at {
        fields.insert(last.clone(), replicas);
    }
}

/// Validates a `Scale`.
pub fn validate(scale: &Value) -> Result<(), Status> {
    let mut errors = Errors::new();
    let root = At::root(scale);
    let spec = root.get("spec");
    let replicas = spec.get("replicas");
    if replicas.int() < 0 {
        errors.push(replicas.invalid("must be greater than or equal to 0"));
    }
    let name = Meta::of(scale).name();
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(GroupName::new("autoscaling", "Scale"), name, &errors)) }
}

fn find<'a>(object: &'a Value, path: &[Str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |at, step| at.get(step)).filter(|value| !value.is_null())
}

fn number(object: &Value, path: &[Str]) -> Option<i64> {
    find(object, path).and_then(Value::as_int)
}

/// Formats a selector: a label selector, a map of labels, or text.
fn selector(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        Value::Object(fields) if fields.get("matchLabels").is_some() || fields.get("matchExpressions").is_some() => {
            labels::from_object(Some(value)).map(|selector| selector.to_string()).unwrap_or_default()
        }
        Value::Object(fields) => {
            let pairs = fields.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
            pairs.collect::<Vec<_>>().join(",")
        }
        _ => String::new(),
    }
}
