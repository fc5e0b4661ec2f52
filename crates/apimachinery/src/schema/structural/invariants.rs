//! Structural rules: every part has a type, and junctors restrict values without describing them.

use super::super::Pattern;
use super::{is_true, list, properties, schema_at, text, type_name};
use crate::field::{Error, Errors};
use crate::{Path, Value};

/// Keywords that describe instead of restrict, which a junctor must not contain, with upstream's messages.
const DESCRIBING: [(&str, &str); 13] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("externalDocs", "must be undefined to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Reports violations of the structural rules in the schema at `path`.
pub(super) fn check(schema: &Value, path: &Path, errors: &mut Errors) {
    invariants(schema, Level::Root, path, errors);
}

fn invariants(schema: &Value, level: Level, path: &Path, errors: &mut Errors) {
    let items = path.field("items");
    match schema_at(schema, "items") {
        Some(inner) => invariants(inner, Level::Item, &items, errors),
        None if type_name(schema) == "array" => errors.push(Error::required(&items, "must be specified")),
        None => {}
    }
    let below = path.field("properties");
    for (name, property) in properties(schema) {
        invariants(property, Level::Field, &below.key(name), errors);
    }
    let others = path.field("additionalProperties");
    if schema.get("additionalProperties").is_some() && level == Level::Root {
        errors.push(Error::forbidden(&others, "must not be used at the root"));
    }
    if let Some(inner) = schema_at(schema, "additionalProperties") {
        invariants(inner, Level::Field, &others, errors);
    }
    extensions(schema, path, errors);
    let any_of_is_type = is_int_or_string(list(schema, "anyOf"));
    let first_all_of_is_type =
        list(schema, "allOf").first().is_some_and(|first| is_int_or_string(list(first, "anyOf")));
    restrictions(schema, any_of_is_type, first_all_of_is_type, path, errors);
    named_type(schema, level, path, errors);
    metadata(schema, level, path, errors);
    if is_true(schema, "x-kubernetes-embedded-resource")
        && !is_true(schema, "x-kubernetes-preserve-unknown-fields")
        && properties(schema).len() == 0
    {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(Error::required(&below, detail));
    }
}

fn extensions(schema: &Value, path: &Path, errors: &mut Errors) {
    if !is_true(schema, "x-kubernetes-int-or-string") {
        return;
    }
    for word in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if is_true(schema, word) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(Error::invalid(&path.field(word), true, detail));
        }
    }
}

fn named_type(schema: &Value, level: Level, path: &Path, errors: &mut Errors) {
    let at = path.field("type");
    let name = type_name(schema);
    let embedded = is_true(schema, "x-kubernetes-embedded-resource");
    if embedded && name != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(required_or_invalid(&at, name, detail));
    } else if name.is_empty()
        && !is_true(schema, "x-kubernetes-int-or-string")
        && !is_true(schema, "x-kubernetes-preserve-unknown-fields")
    {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(Error::required(&at, detail));
    }
    if embedded && schema.get("additionalProperties").is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(Error::forbidden(&path.field("additionalProperties"), detail));
    }
    if level == Level::Root && !name.is_empty() && name != "object" {
        errors.push(Error::invalid(&at, name, "must be object at the root"));
    }
}

/// Validates the schemas of `apiVersion`, `kind` and `metadata`, which may be declared but hardly restricted.
fn metadata(schema: &Value, level: Level, path: &Path, errors: &mut Errors) {
    let whole = level == Level::Root || is_true(schema, "x-kubernetes-embedded-resource");
    let below = path.field("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(property) = schema.at(&["properties", name])
            && whole
            && type_name(property) != "string"
        {
            let at = below.key(name);
            errors.push(Error::invalid(&at.field("type"), type_name(property), "must be string"));
        }
    }
    let Some(property) = schema.at(&["properties", "metadata"]) else { return };
    let at = below.key("metadata");
    if whole && type_name(property) != "object" {
        errors.push(Error::invalid(&at.field("type"), type_name(property), "must be object"));
    }
    let only_names = properties(property).all(|(name, _)| matches!(name, "name" | "generateName"));
    let has_other_keywords = property
        .as_object()
        .is_some_and(|keywords| keywords.keys().any(|word| !matches!(word, "type" | "properties" | "default")));
    if level == Level::Root && (!only_names || has_other_keywords) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(Error::forbidden(&at, detail));
    }
}

/// Validates the junctors and the pattern of a schema.
fn restrictions(schema: &Value, skip_any_of: bool, first_all_of_is_type: bool, path: &Path, errors: &mut Errors) {
    let each = |word: &str, types_in_first: bool, errors: &mut Errors| {
        let below = path.field(word);
        for (at, inner) in list(schema, word).iter().enumerate() {
            nested(inner, types_in_first && at == 0, &below.index(at), errors);
        }
    };
    if !skip_any_of {
        each("anyOf", false, errors);
    }
    each("allOf", first_all_of_is_type, errors);
    each("oneOf", false, errors);
    if let Some(inner) = schema_at(schema, "not") {
        nested(inner, false, &path.field("not"), errors);
    }
    if let Some(source) = text(schema, "pattern")
        && let Err(error) = Pattern::new(source)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(Error::invalid(&path.field("pattern"), source, detail));
    }
}

fn nested(schema: &Value, any_of_is_type: bool, path: &Path, errors: &mut Errors) {
    restrictions(schema, any_of_is_type, false, path, errors);
    if let Some(inner) = schema_at(schema, "items") {
        nested(inner, false, &path.field("items"), errors);
    }
    let below = path.field("properties");
    for (name, property) in properties(schema) {
        nested(property, false, &below.key(name), errors);
    }
    for (word, detail) in DESCRIBING {
        if schema.get(word).is_some_and(is_specified) {
            errors.push(Error::forbidden(&path.field(word), detail));
        }
    }
    if !list(schema, "x-kubernetes-validations").is_empty() {
        errors.push(Error::forbidden(&path.field("x-kubernetes-validations"), "must be empty to be structural"));
    }
    if schema.at(&["properties", "metadata"]).is_some() {
        errors.push(Error::forbidden(&below.key("metadata"), "must not be specified in a nested context"));
    }
}

fn is_specified(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    }
}

/// Whether `anyOf` is the only form that may declare types: an integer or a string.
fn is_int_or_string(any_of: &[Value]) -> bool {
    let only_type = |schema: &Value, name: &str| {
        schema.as_object().is_some_and(|keywords| keywords.len() == 1) && type_name(schema) == name
    };
    matches!(any_of, [integer, string] if only_type(integer, "integer") && only_type(string, "string"))
}

/// Returns a "required" error for an empty name, otherwise an "invalid" one.
pub(super) fn required_or_invalid(path: &Path, name: &str, detail: &str) -> Error {
    if name.is_empty() { Error::required(path, detail) } else { Error::invalid(path, name, detail) }
}
