//! Validation of OpenAPI features and `x-kubernetes-` extensions in CRD schemas.

use super::super::JsonType;
use super::invariants::required_or_invalid;
use super::{is_true, list, properties, schema_at, text, type_name};
use crate::field::{BadValue, Error, Errors};
use crate::{Path, Value};

/// OpenAPI keywords that a CRD cannot use.
const UNSUPPORTED: [&str; 6] = ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

/// The valid reasons of a CEL rule, sorted.
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Properties that a schema inherits from its position.
#[derive(Clone, Copy, Default)]
struct Context<'a> {
    root: bool,
    in_metadata: bool,
    defaults_forbidden: Option<&'a str>,
}

/// Reports errors in the schema at `path`, structural or not.
pub(super) fn check(schema: &Value, path: &Path, errors: &mut Errors) {
    walk(schema, Context { root: true, ..Context::default() }, path, errors);
}

fn walk(schema: &Value, context: Context<'_>, path: &Path, errors: &mut Errors) {
    standard(schema, context, path, errors);
    let inner = Context { root: false, ..context };
    others(schema, inner, path, errors);
    let below = path.field("properties");
    for (name, property) in properties(schema) {
        let whole = context.root || is_true(schema, "x-kubernetes-embedded-resource");
        let is_meta = whole && matches!(name, "apiVersion" | "kind" | "metadata");
        let reason = format!("in top-level {name}");
        let inner = Context {
            in_metadata: inner.in_metadata || is_meta,
            defaults_forbidden: if is_meta && context.root { Some(&reason) } else { inner.defaults_forbidden },
            ..inner
        };
        walk(property, inner, &below.key(name), errors);
    }
    if let Some(not) = schema_at(schema, "not") {
        walk(not, inner, &path.field("not"), errors);
    }
    for word in ["allOf", "oneOf", "anyOf"] {
        let below = path.field(word);
        for (at, one) in list(schema, word).iter().enumerate() {
            walk(one, inner, &below.index(at), errors);
        }
    }
    if let Some(items) = schema_at(schema, "items") {
        walk(items, inner, &path.field("items"), errors);
    }
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if schema.get(preserve) == Some(&Value::Bool(false)) {
        errors.push(Error::invalid(&path.field(preserve), false, "must be true or undefined"));
    }
    map_type(schema, path, errors);
    list_type(schema, path, errors);
    list_map(schema, path, errors);
    key_properties(schema, path, errors);
    for (at, rule) in list(schema, "x-kubernetes-validations").iter().enumerate() {
        cel_rule(rule, &path.field("x-kubernetes-validations").index(at), errors);
    }
}

fn standard(schema: &Value, context: Context<'_>, path: &Path, errors: &mut Errors) {
    let name = type_name(schema);
    if !name.is_empty() && JsonType::named(name).is_none() {
        errors.push(Error::not_supported(&path.field("type"), name, &JsonType::ALL.map(JsonType::name)));
    }
    if let Some(reason) = context.defaults_forbidden
        && schema.get("default").is_some_and(|default| !default.is_null())
    {
        errors.push(Error::forbidden(&path.field("default"), format!("must not be set {reason}")));
    }
    for word in UNSUPPORTED {
        if schema.get(word).is_some_and(|value| *value != Value::from("") && *value != Value::object()) {
            errors.push(Error::forbidden(&path.field(word), format!("{word} is not supported")));
        }
    }
    if name == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(Error::forbidden(&path.field("type"), detail));
    }
    if !list(schema, "items").is_empty() {
        errors.push(Error::forbidden(&path.field("items"), "items must be a schema object and not an array"));
    }
    let embedded = "x-kubernetes-embedded-resource";
    if context.in_metadata && is_true(schema, embedded) {
        errors.push(Error::forbidden(&path.field(embedded), "must not be used inside of resource meta"));
    }
    if is_true(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(Error::forbidden(&path.field("uniqueItems"), detail));
    }
}

fn others(schema: &Value, context: Context<'_>, path: &Path, errors: &mut Errors) {
    let at = path.field("additionalProperties");
    let Some(value) = schema.get("additionalProperties").filter(|value| !value.is_null()) else { return };
    if properties(schema).len() > 0 && *value != Value::Bool(true) {
        errors.push(Error::forbidden(&at, "additionalProperties and properties are mutual exclusive"));
    }
    if value.as_object().is_some() {
        let reason = "inside additionalProperties applying to object metadata";
        let defaults_forbidden = if context.in_metadata { Some(reason) } else { context.defaults_forbidden };
        walk(value, Context { defaults_forbidden, ..context }, &at, errors);
    }
}

fn map_type(schema: &Value, path: &Path, errors: &mut Errors) {
    let word = "x-kubernetes-map-type";
    let Some(kind) = text(schema, word) else { return };
    if type_name(schema) != "object" {
        let detail = "must be object if x-kubernetes-map-type is specified";
        errors.push(required_or_invalid(&path.field("type"), type_name(schema), detail));
    }
    if !matches!(kind, "atomic" | "granular") {
        errors.push(Error::not_supported(&path.field(word), kind, &["atomic", "granular"]));
    }
}

fn list_type(schema: &Value, path: &Path, errors: &mut Errors) {
    let word = "x-kubernetes-list-type";
    let kind = text(schema, word);
    if let Some(kind) = kind {
        if type_name(schema) != "array" {
            let detail = "must be array if x-kubernetes-list-type is specified";
            errors.push(required_or_invalid(&path.field("type"), type_name(schema), detail));
        } else if kind == "set" {
            set_items(schema, path, errors);
        }
        if !matches!(kind, "atomic" | "set" | "map") {
            errors.push(Error::not_supported(&path.field(word), kind, &["atomic", "set", "map"]));
        }
    }
    if !list(schema, "x-kubernetes-list-map-keys").is_empty() && kind != Some("map") {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        let at = path.field(word);
        errors.push(kind.map_or_else(|| Error::required(&at, detail), |kind| Error::invalid(&at, kind, detail)));
    }
}

/// Validates the items of a set, which are compared as a whole and must therefore be atomic.
fn set_items(schema: &Value, path: &Path, errors: &mut Errors) {
    let Some(items) = schema_at(schema, "items") else { return };
    let (word, wrong) = match type_name(items) {
        "array" => {
            ("x-kubernetes-list-type", text(items, "x-kubernetes-list-type").is_some_and(|kind| kind != "atomic"))
        }
        "object" => ("x-kubernetes-map-type", text(items, "x-kubernetes-map-type") != Some("atomic")),
        _ => return,
    };
    if wrong {
        // Upstream prints the list type in both cases.
        let bad_value = items.get("x-kubernetes-list-type").unwrap_or(&Value::Null);
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        errors.push(Error::invalid(&path.field("items").field(word), bad_value, detail));
    }
}

fn list_map(schema: &Value, path: &Path, errors: &mut Errors) {
    if text(schema, "x-kubernetes-list-type") != Some("map") {
        return;
    }
    let keys = list(schema, "x-kubernetes-list-map-keys");
    let keys_path = path.field("x-kubernetes-list-map-keys");
    let items_path = path.field("items");
    if keys.is_empty() {
        errors.push(Error::required(&keys_path, "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(items) = schema.get("items") else {
        errors.push(Error::required(&items_path, "must have a schema if x-kubernetes-list-type is map"));
        return;
    };
    if items.as_object().is_none() {
        let several = if items.as_array().is_some() { items } else { &Value::Null };
        let bad_value = BadValue::Text(format!("{{\"Schema\":null,\"JSONSchemas\":{several}}}"));
        let detail = "must only have a single schema if x-kubernetes-list-type is map";
        errors.push(Error::invalid(&items_path, bad_value, detail));
        return;
    }
    if type_name(items) != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(Error::invalid(&items_path.field("type"), type_name(items), detail));
        return;
    }
    let below = items_path.field("properties");
    for (at, key) in keys.iter().enumerate() {
        let bad_value = || schema["x-kubernetes-list-map-keys"].clone();
        let name = key.as_str().unwrap_or_default();
        match items.at(&["properties", name]) {
            Some(property) if matches!(type_name(property), "array" | "object") => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(Error::invalid(&below.key(name).field("type"), type_name(items), detail));
            }
            Some(_) => {}
            None => {
                errors.push(Error::invalid(&keys_path, bad_value(), "entries must all be names of item properties"));
            }
        }
        if keys[..at].contains(key) {
            errors.push(Error::invalid(&keys_path, bad_value(), "must not contain duplicate entries"));
        }
    }
}

/// Validates that items of sets and maps are not nullable, and that map keys are required or have a default.
fn key_properties(schema: &Value, path: &Path, errors: &mut Errors) {
    let Some(kind @ ("set" | "map")) = text(schema, "x-kubernetes-list-type") else { return };
    let Some(items) = schema_at(schema, "items") else { return };
    let at = path.field("items");
    if is_true(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
        errors.push(Error::forbidden(&at.field("nullable"), detail));
    }
    if kind == "set" {
        return;
    }
    let below = at.field("properties");
    for name in list(schema, "x-kubernetes-list-map-keys").iter().filter_map(Value::as_str) {
        let Some(property) = items.at(&["properties", name]) else { continue };
        let required = list(items, "required").iter().any(|one| one.as_str() == Some(name));
        if !required && property.get("default").is_none_or(Value::is_null) {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(Error::required(&below.key(name).field("default"), detail));
        }
        if is_true(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(Error::forbidden(&below.key(name).field("nullable"), detail));
        }
    }
}

fn cel_rule(rule: &Value, path: &Path, errors: &mut Errors) {
    let word = |key: &str| text(rule, key).unwrap_or_default();
    let has_lines = |text: &str| text.contains(['\n', '\r']);
    let (expression, message) = (word("rule").trim(), word("message"));
    if expression.is_empty() {
        errors.push(Error::required(&path.field("rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(Error::invalid(&path.field("message"), message, "message must be non-empty if specified"));
    } else if has_lines(message.trim()) {
        errors.push(Error::invalid(&path.field("message"), message, "message must not contain line breaks"));
    } else if has_lines(expression) && message.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(Error::required(&path.field("message"), detail));
    }
    let message_expression = word("messageExpression");
    if !message_expression.is_empty() && message_expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(Error::required(&path.field("messageExpression"), detail));
    }
    if let Some(reason) = text(rule, "reason")
        && !REASONS.contains(&reason)
    {
        errors.push(Error::not_supported(&path.field("reason"), reason, &REASONS));
    }
    let field_path = word("fieldPath");
    let at = path.field("fieldPath");
    if !field_path.is_empty() && field_path.trim().is_empty() {
        errors.push(Error::invalid(&at, field_path, "fieldPath must be non-empty if specified"));
    }
    if has_lines(field_path) {
        errors.push(Error::invalid(&at, field_path, "fieldPath must not contain line breaks"));
    }
}
