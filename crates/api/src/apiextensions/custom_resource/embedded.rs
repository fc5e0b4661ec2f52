//! Validation of resources embedded in a custom resource (`x-kubernetes-embedded-resource`).

use apimachinery::field::Error;
use apimachinery::meta::{self, Meta, MetaMut, Scope};
use apimachinery::schema::Shape;
use apimachinery::{Errors, Path, Schema, Value, names};

/// Validates every resource embedded below the object. The object itself is validated elsewhere.
pub(super) fn validate(object: &Value, schema: Schema<'_>, errors: &mut Errors) {
    validate_children(object, schema, &Path::ROOT, errors);
}

fn validate_children(value: &Value, schema: Schema<'_>, path: &Path, errors: &mut Errors) {
    match (value, schema.shape()) {
        (Value::Object(object), Shape::Struct(_)) => {
            for (key, value) in object.iter() {
                if let Some((_, ty)) = schema.field(key) {
                    one(value, ty, &path.field(key), errors);
                }
            }
        }
        (Value::Object(object), Shape::Map(map)) => {
            let ty = schema.other(map.value);
            object.iter().for_each(|(key, value)| one(value, ty, &path.key(key), errors));
        }
        (Value::Array(items), Shape::List(list)) => {
            let ty = schema.other(list.item);
            items.iter().enumerate().for_each(|(at, item)| one(item, ty, &path.index(at), errors));
        }
        _ => {}
    }
}

fn one(value: &Value, schema: Schema<'_>, path: &Path, errors: &mut Errors) {
    if matches!(schema.shape(), Shape::Struct(shape) if shape.embedded) && value.as_object().is_some() {
        resource(value, path, errors);
    }
    validate_children(value, schema, path, errors);
}

/// Validates kind and metadata of an embedded resource; the name is optional.
fn resource(resource: &Value, path: &Path, errors: &mut Errors) {
    let kind = path.field("kind");
    match resource.text_at(&["kind"]) {
        // Schema validation reports a missing kind and checks apiVersion.
        "" => {}
        kind_name => {
            let wrong = names::dns1035_label(&kind_name.to_lowercase()).join(",");
            if !wrong.is_empty() {
                let detail = format!("may have mixed case, but should otherwise match: {wrong}");
                errors.push(Error::invalid(&kind, kind_name, detail));
            }
        }
    }
    if resource.get("metadata").is_none() {
        return;
    }
    let mut named = resource.clone();
    if let (Some(mut meta), true) = (MetaMut::of(&mut named), Meta::of(resource).name().is_empty()) {
        // The name is optional here, so a valid placeholder replaces a missing one.
        meta.set("name", "template");
    }
    let scope = if Meta::of(resource).namespace().is_empty() { Scope::Cluster } else { Scope::Namespaced };
    meta::validate_create(&named, scope, meta::name_is_path_segment, &path.field("metadata"), errors);
}
