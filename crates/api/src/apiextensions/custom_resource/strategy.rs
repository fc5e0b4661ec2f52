//! Request handling rules of custom resources: defaulting, pruning, schema and CEL validation, status and scale.

use std::sync::{Arc, OnceLock};

use apimachinery::field::{BadValue, Error, Reason};
use apimachinery::labels::Selector;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::schema::structural::Structural;
use apimachinery::{Errors, Path, Str, Value, validate};

use super::embedded;
use super::validator::{Findings, Validator};
use crate::kind::{Context, ReplicaPaths, Rules};

/// The rules of all versions of a custom resource kind.
#[derive(Debug)]
pub(super) struct CustomResource {
    versions: Vec<CustomVersion>,
}

/// The rules of one version.
#[derive(Debug)]
pub(super) struct CustomVersion {
    name: Str,
    /// The schema as written in the CRD.
    schema: Value,
    types: Arc<Structural>,
    has_status: bool,
    scale: Option<ReplicaPaths>,
    /// Compiled when the first object is validated.
    validator: OnceLock<Option<Validator>>,
}

impl CustomResource {
    pub(super) const fn new(versions: Vec<CustomVersion>) -> Self {
        Self { versions }
    }

    fn version(&self, context: &Context<'_>) -> Option<&CustomVersion> {
        self.versions.iter().find(|version| version.name == context.version.name)
    }
}

impl CustomVersion {
    pub(super) fn new(
        name: &str,
        schema: Value,
        types: Arc<Structural>,
        has_status: bool,
        scale: Option<ReplicaPaths>,
    ) -> Self {
        Self { name: name.into(), schema, types, has_status, scale, validator: OnceLock::new() }
    }

    fn validator(&self) -> Option<&Validator> {
        self.validator.get_or_init(|| Validator::new(&self.types)).as_ref()
    }

    fn validate(&self, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        let before = errors.len();
        let schema = self.types.schema();
        errors.extend(match old {
            Some(old) => validate::validate_update(object, old, schema),
            None => validate::validate(object, schema),
        });
        if let Some(scale) = &self.scale {
            validate_scale(object, scale, errors);
        }
        embedded::validate(object, schema, errors);
        let Some(validator) = self.validator() else { return };
        if errors[before..].iter().any(|error| is_blocking(error.reason)) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing \
                          errors to complete validation";
            return errors.push(Error::invalid(&Path::ROOT, Value::Null, detail));
        }
        errors.extend(validator.validate(object, old).errors);
    }
}

impl Rules for CustomResource {
    fn field_selector_error(&self, _version: &str, field: &str) -> Option<String> {
        Some(format!("field label not supported: {field}"))
    }

    fn prepare_create(&self, object: &mut Value, context: &Context<'_>) {
        if self.version(context).is_some_and(|version| version.has_status)
            && let Value::Object(fields) = object
        {
            fields.remove("status");
        }
        if let Some(mut meta) = MetaMut::of(object) {
            meta.set("generation", 1);
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        let has_status = self.version(context).is_some_and(|version| version.has_status);
        if has_status && context.subresource == "status" {
            return keep_all_but_status(object, old);
        }
        if has_status {
            take(object, old, "status");
        }
        let content = |value: &Value| {
            let mut content = value.as_object().cloned().unwrap_or_default();
            content.remove("metadata");
            if has_status {
                content.remove("status");
            }
            content
        };
        let generation = Meta::of(old).generation();
        let changed = content(object) != content(old);
        if let Some(mut meta) = MetaMut::of(object) {
            meta.set("generation", if changed { generation + 1 } else { generation });
        }
    }

    fn validate(&self, object: &Value, context: &Context<'_>, errors: &mut Errors) {
        if let Some(version) = self.version(context) {
            version.validate(object, None, errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        if let Some(version) = self.version(context) {
            version.validate(object, Some(old), errors);
        }
    }

    /// Returns rule violations in parts that this write does not change (validation ratcheting).
    fn warnings(&self, object: &Value, old: Option<&Value>, context: &Context<'_>) -> Vec<String> {
        let validator = self.version(context).and_then(CustomVersion::validator);
        match (validator, old) {
            (Some(validator), Some(old)) => {
                let Findings { ratcheted, .. } = validator.validate(object, Some(old));
                ratcheted.iter().map(ToString::to_string).collect()
            }
            _ => Vec::new(),
        }
    }

    fn published_schema(&self, version: &str) -> Option<&Value> {
        self.versions.iter().find(|have| have.name == version).map(|version| &version.schema)
    }

    /// A status write changes neither spec nor metadata; other writes do not change the status.
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "" => &["status"],
            "status" => &["metadata", "spec"],
            _ => &[],
        }
    }
}

/// Whether CEL rules are skipped after this error: rules may assume that such errors do not occur.
const fn is_blocking(reason: Reason) -> bool {
    matches!(reason, Reason::NotSupported | Reason::Required | Reason::TooLong | Reason::TooMany | Reason::TypeInvalid)
}

fn keep_all_but_status(object: &mut Value, old: &Value) {
    let (Value::Object(fields), Some(before)) = (&mut *object, old.as_object()) else { return };
    let status = fields.remove("status");
    let managed = fields.get("metadata").and_then(|metadata| metadata.get("managedFields")).cloned();
    let version = fields.get("apiVersion").cloned();
    *fields = before.clone();
    match status {
        Some(status) => drop(fields.insert("status", status)),
        None => drop(fields.remove("status")),
    }
    if let Some(version) = version {
        fields.insert("apiVersion", version);
    }
    if let (Some(mut meta), Some(managed)) = (MetaMut::of(object), managed) {
        meta.set("managedFields", managed);
    }
}

/// Copies a field from `old` to `object`.
fn take(object: &mut Value, old: &Value, field: &str) {
    let Value::Object(fields) = object else { return };
    match old.get(field) {
        Some(value) => drop(fields.insert(field, value.clone())),
        None => drop(fields.remove(field)),
    }
}

/// Checks that the fields behind the Scale subresource have valid values.
fn validate_scale(object: &Value, paths: &ReplicaPaths, errors: &mut Errors) {
    for steps in [&paths.desired, &paths.actual] {
        let Some(replicas) = follow(object, steps).and_then(Value::as_int) else { continue };
        let detail = if replicas < 0 {
            "should be a non-negative integer".to_owned()
        } else if replicas > i64::from(i32::MAX) {
            format!("should be less than or equal to {}", i32::MAX)
        } else {
            continue;
        };
        errors.push(Error::invalid(&Path::of(&printed(steps)), replicas, detail));
    }
    let selector = paths.selector.as_ref().and_then(|steps| Some((steps, follow(object, steps)?.as_str()?)));
    if let Some((steps, text)) = selector
        && let Err(error) = Selector::parse(text)
    {
        let bad_value = BadValue::Value(text.into());
        errors.push(Error::invalid(&Path::of(&printed(steps)), bad_value, error.to_string()));
    }
}

fn follow<'a>(object: &'a Value, steps: &[Str]) -> Option<&'a Value> {
    steps.iter().try_fold(object, |value, step| value.get(step))
}

fn printed(steps: &[Str]) -> String {
    steps.iter().flat_map(|step| [".", step.as_str()]).collect()
}
