//! Validation of a CRD version's schema: it must be structural, and its CEL rules must compile within the cost limits.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::field::{BadValue, Error};
use apimachinery::schema::structural::{self, Structural};
use apimachinery::schema::{Format, JsonType, Shape};
use apimachinery::{At, Errors, Object, Path, Schema, Value, go};
use cel::cost::limits;
use cel::schema::occurrences_max;

use crate::apiextensions::custom_resource::field_path::{self, Notation};
use crate::apiextensions::custom_resource::rule::{CompiledRule, Scope};

/// Fields allowed at the root of a schema if the status subresource is enabled: Go name, JSON name.
const AT_ROOT: [(&str, &str); 22] = [
    ("Description", "description"),
    ("Type", "type"),
    ("Format", "format"),
    ("Title", "title"),
    ("Maximum", "maximum"),
    ("ExclusiveMaximum", "exclusiveMaximum"),
    ("Minimum", "minimum"),
    ("ExclusiveMinimum", "exclusiveMinimum"),
    ("MaxLength", "maxLength"),
    ("MinLength", "minLength"),
    ("Pattern", "pattern"),
    ("MaxItems", "maxItems"),
    ("MinItems", "minItems"),
    ("UniqueItems", "uniqueItems"),
    ("MultipleOf", "multipleOf"),
    ("Required", "required"),
    ("Items", "items"),
    ("Properties", "properties"),
    ("ExternalDocs", "externalDocs"),
    ("Example", "example"),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields"),
    ("XValidations", "x-kubernetes-validations"),
];

/// Validates the `schema` of one version or the schema that all versions share. `status`: whether the status
/// subresource is enabled.
pub(super) fn validate(at: &At<'_>, status: bool, errors: &mut Errors) {
    let schema = at.get("openAPIV3Schema");
    if schema.is_absent() {
        return;
    }
    let before = errors.len();
    if status {
        validate_root(&schema, errors);
    }
    let found = structural::check(schema.value(), schema.path());
    let sound = found.is_empty();
    errors.extend(found);
    match Structural::new(schema.value()) {
        Ok(types) if sound => validate_rules(&schema, types, errors),
        Err(error) if errors.len() == before => {
            errors.push(Error::invalid(schema.path(), "", error.to_string()));
        }
        Ok(_) | Err(_) => {}
    }
}

/// Returns the unsupported formats in the schemas of a CRD, sorted.
pub(super) fn unknown_formats(crd: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let versions = crd.list_at(&["spec", "versions"]);
    let mut open: Vec<&Value> =
        versions.iter().filter_map(|version| version.at(&["schema", "openAPIV3Schema"])).collect();
    while let Some(schema) = open.pop() {
        let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
        let known = [JsonType::String, JsonType::Integer, JsonType::Number]
            .into_iter()
            .any(|json_type| Format::named(format, Some(json_type)).is_some());
        if !format.is_empty() && !known {
            found.insert(format.to_owned());
        }
        open.extend(entries(schema, "properties").map(|(_, property)| property));
        open.extend(["items", "additionalProperties"].iter().filter_map(|key| schema.get(key)));
    }
    found
}

/// Restricts root-level schema fields so that the status can be validated separately. As in upstream, only the first
/// violation in the order of Go's struct fields is reported.
fn validate_root(schema: &At<'_>, errors: &mut Errors) {
    let is_set = |key: &str| schema.value().get(key).is_some_and(|value| !is_zero(value));
    let ty = schema.get("type");
    if !["id", "$schema", "$ref"].iter().any(|key| is_set(key)) && !ty.is_empty() && ty.str() != "object" {
        let detail =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return errors.push(ty.invalid(detail));
    }
    let mut keys = schema.value().as_object().into_iter().flat_map(Object::keys);
    if keys.any(|key| is_set(key) && !AT_ROOT.iter().any(|(_, json)| *json == key)) {
        let names: Vec<_> = AT_ROOT.iter().map(|(go, _)| *go).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        errors.push(schema.invalid(detail));
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(bool) => !bool,
        Value::String(text) => text.is_empty(),
        Value::Int(_) | Value::Float(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Validates the CEL rules of an otherwise valid schema.
fn validate_rules(schema: &At<'_>, types: Structural, errors: &mut Errors) {
    let types = Arc::new(types);
    let mut walk = Walk { scope: Scope::new(Arc::clone(&types)), total: 0, expensive: Vec::new(), errors };
    walk.node(
        schema.value(),
        types.schema(),
        SchemaContext { root: true, times: Some(1), uncorrelated: None },
        schema.path(),
    );
    let Walk { total, mut expensive, .. } = walk;
    if total <= limits::ESTIMATE_PER_CRD {
        return;
    }
    expensive.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
    for (_, path) in expensive.into_iter().take(EXPENSIVE_MAX) {
        errors.push(Error::forbidden(&Path::of(&path), limits::CONTRIBUTED));
    }
    if let Some(message) = limits::exceeded(limits::CRD, total, limits::ESTIMATE_PER_CRD) {
        errors.push(Error::forbidden(schema.path(), message));
    }
}

/// Maximum number of rules reported when the total cost limit is exceeded.
const EXPENSIVE_MAX: usize = 4;

struct Walk<'e> {
    scope: Scope,
    total: u64,
    /// Estimated cost and path of every rule.
    expensive: Vec<(u64, String)>,
    errors: &'e mut Errors,
}

/// Properties that a schema node inherits from its ancestors.
#[derive(Clone, Copy)]
struct SchemaContext<'a> {
    root: bool,
    /// Maximum number of such values in one object, if bounded.
    times: Option<u64>,
    /// Path of the outermost list whose items cannot be correlated between old and new object.
    uncorrelated: Option<&'a str>,
}

impl Walk<'_> {
    fn node(&mut self, schema: &Value, types: Schema<'_>, context: SchemaContext<'_>, path: &Path) {
        let inner = SchemaContext { root: false, ..context };
        let bound = |limit: &str| {
            let limit = schema.get(limit).and_then(Value::as_int).and_then(|limit| u64::try_from(limit).ok());
            context.times.zip(limit).map(|(times, limit)| times.saturating_mul(limit))
        };
        match types.shape() {
            Shape::Struct(_) => {
                let below = path.field("properties");
                for (name, property) in entries(schema, "properties") {
                    if let Some((_, types)) = types.field(name) {
                        self.node(property, types, inner, &below.key(name));
                    }
                }
            }
            Shape::Map(map) => {
                let context = SchemaContext { times: bound("maxProperties"), ..inner };
                let values = &schema["additionalProperties"];
                self.node(values, types.other(map.value), context, &path.field("additionalProperties"));
            }
            Shape::List(list) => {
                let here = path.to_string();
                let is_map_list = schema.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("map");
                let uncorrelated = context.uncorrelated.or_else(|| (!is_map_list).then_some(here.as_str()));
                let context = SchemaContext { times: bound("maxItems"), uncorrelated, ..inner };
                self.node(&schema["items"], types.other(list.item), context, &path.field("items"));
            }
            _ => {}
        }
        self.rules(schema, types, context, path);
    }

    fn rules(&mut self, schema: &Value, types: Schema<'_>, context: SchemaContext<'_>, path: &Path) {
        let Some(rules) = types.ty().rules.as_ref() else { return };
        let below = path.field("x-kubernetes-validations");
        for (at, validation) in rules.validations.iter().enumerate() {
            let at = below.index(at);
            if !validation.field_path.is_empty()
                && field_path::resolve(&validation.field_path, schema, Notation::Brackets).is_err()
            {
                let field_path = validation.field_path.as_str();
                self.errors.push(Error::invalid(&at.field("fieldPath"), field_path, "must be a valid path"));
                continue;
            }
            let compiled = self.scope.compile(types.id(), context.root, validation);
            let bad_value = || bad_value(validation);
            let times = context.times.unwrap_or_else(|| occurrences_max(types));
            self.cost(&at.field("rule"), limits::RULE, compiled.cost.saturating_mul(times));
            if let Err(detail) = &compiled.rule {
                self.errors.push(Error::invalid(&at.field("rule"), bad_value(), detail.as_str()));
            }
            match &compiled.message {
                Some(Err(detail)) => {
                    self.errors.push(Error::invalid(&at.field("messageExpression"), bad_value(), detail.as_str()));
                }
                Some(Ok((_, cost))) => self.cost(&at.field("messageExpression"), limits::MESSAGE_EXPRESSION, *cost),
                None => {}
            }
            self.old_self(&compiled, context, &at);
        }
    }

    fn old_self(&mut self, compiled: &CompiledRule, context: SchemaContext<'_>, at: &Path) {
        let validation = &compiled.validation;
        match (compiled.uses_old_self, context.uncorrelated, validation.optional_old_self) {
            (true, Some(within), _) => {
                let detail =
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
                self.errors.push(Error::invalid(&at.field("rule"), validation.rule.as_str(), detail));
            }
            (false, _, Some(optional)) => {
                let detail = "may not be set if oldSelf is not used in rule";
                self.errors.push(Error::invalid(&at.field("optionalOldSelf"), optional, detail));
            }
            (true, None, _) | (false, _, None) => {}
        }
    }

    fn cost(&mut self, path: &Path, what: &str, cost: u64) {
        if let Some(message) = limits::exceeded(what, cost, limits::ESTIMATE_PER_EXPRESSION) {
            self.errors.push(Error::forbidden(path, message));
        }
        self.total = self.total.saturating_add(cost);
        self.expensive.push((cost, path.to_string()));
    }
}

/// Formats a rule for an error message, with Go field names.
fn bad_value(validation: &apimachinery::schema::Validation) -> BadValue {
    let text = |text: &str| go::json(&Value::from(text));
    let reason = validation.reason.as_deref().map_or_else(|| "null".to_owned(), text);
    let optional = validation.optional_old_self.map_or_else(|| "null".to_owned(), |value| value.to_string());
    BadValue::Text(format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{reason},"FieldPath":{},"OptionalOldSelf":{optional}}}"#,
        text(&validation.rule),
        text(&validation.message),
        text(&validation.message_expression),
        text(&validation.field_path),
    ))
}

fn entries<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    schema.get(key).and_then(Value::as_object).into_iter().flat_map(Object::iter)
}
