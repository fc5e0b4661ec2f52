//! Validation of the defaults of a structural schema against the schema itself.

use super::super::{JsonType, Schema, Shape};
use super::{properties, schema_at, type_name};
use crate::field::{Error, Errors};
use crate::{Path, Value, pruning, validate};

/// Reports invalid defaults in the schema at `path`, from which `types` was built.
pub(super) fn check(schema: &Value, types: Schema<'_>, path: &Path, errors: &mut Errors) {
    walk(schema, types, path, false, errors);
}

fn walk(schema: &Value, types: Schema<'_>, path: &Path, in_metadata: bool, errors: &mut Errors) {
    let embedded = matches!(types.shape(), Shape::Struct(whole) if whole.embedded);
    let in_metadata = in_metadata && !embedded;
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        one(schema, default, types, &path.field("default"), in_metadata, errors);
    }
    // A default under `additionalProperties` has no effect, and upstream does not check it.
    if let (Some(inner), Some(types)) = (schema_at(schema, "items"), types.item()) {
        walk(inner, types, &path.field("items"), in_metadata, errors);
    }
    let below = path.field("properties");
    for (name, property) in properties(schema) {
        if let Some((_, types)) = types.field(name) {
            let meta = in_metadata || embedded && matches!(name, "apiVersion" | "kind" | "metadata");
            walk(property, types, &below.key(name), meta, errors);
        }
    }
}

fn one(schema: &Value, default: &Value, types: Schema<'_>, path: &Path, in_metadata: bool, errors: &mut Errors) {
    if !in_metadata {
        let mut pruned = default.clone();
        pruning::prune(&mut pruned, types);
        if pruned != *default {
            errors.push(Error::invalid(path, default, "must not have unknown fields"));
        }
    }
    let expected_type = type_name(schema);
    if let Some(found) = JsonType::of(default)
        && !expected_type.is_empty()
        && JsonType::named(expected_type).is_none()
    {
        let detail = format!(" in body must be of type {expected_type}: \"{}\"", found.name());
        errors.push(Error::type_invalid(path, found.name(), detail));
    }
    errors.append(&mut validate::validate_at(default, types, path));
}
