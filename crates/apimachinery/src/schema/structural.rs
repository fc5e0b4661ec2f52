//! Structural schemas: types from the OpenAPI v3 schema of a CRD, and the validation of such a schema.

mod build;
mod completeness;
mod defaults;
mod invariants;
mod openapi;

use std::sync::Arc;

use super::{Schema, TypeId, Types};
use crate::field::Errors;
use crate::{Path, Value};

pub use build::Error;

/// The types that one version of a CRD defines.
#[derive(Debug)]
pub struct Structural {
    types: Arc<Types>,
    root: TypeId,
}

impl Structural {
    /// Builds types from a schema (`openAPIV3Schema`). Never fails for a schema without errors in [`check`].
    pub fn new(schema: &Value) -> Result<Self, Error> {
        build::types(schema).map(|(types, root)| Self { types: Arc::new(types), root })
    }

    /// Builds types from a schema; `envelope` supplies `apiVersion`, `kind` and `metadata` of embedded resources and of
    /// the root object.
    pub fn enveloped(schema: &Value, envelope: Schema<'static>) -> Result<Self, Error> {
        build::types(schema).map(|(types, root)| Self { types: Arc::new(types.enveloped(envelope)), root })
    }

    /// Returns the type of the root object.
    pub fn schema(&self) -> Schema<'_> {
        self.types.schema(self.root)
    }

    pub fn types(&self) -> &Types {
        &self.types
    }

    /// Returns all types with shared ownership.
    pub fn shared(&self) -> Arc<Types> {
        Arc::clone(&self.types)
    }

    /// Returns the ID of the type of the root object.
    pub const fn root(&self) -> TypeId {
        self.root
    }
}

/// Returns all errors that upstream reports for a schema at `path`: violations of structural rules, defaults that do
/// not match their own schema, and misuse of OpenAPI and of the `x-kubernetes-` extensions.
///
/// CEL rules are inspected but not compiled.
pub fn check(schema: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if is_true(schema, "nullable") {
        errors.push(crate::field::Error::forbidden(&path.field("nullable"), "nullable cannot be true at the root"));
    }
    let mut structural = Errors::new();
    invariants::check(schema, path, &mut structural);
    completeness::check(schema, path, &mut structural);
    structural.sort_by_cached_key(ToString::to_string);
    // Defaults are checked only against a valid structural schema.
    if structural.is_empty()
        && let Ok(types) = Structural::new(schema)
    {
        defaults::check(schema, types.schema(), path, &mut structural);
    }
    errors.append(&mut structural);
    openapi::check(schema, path, &mut errors);
    errors
}

/// Returns a keyword of a schema. A value of the wrong type counts as absent in this and the following functions, since
/// decoding has already rejected it.
fn text<'a>(schema: &'a Value, key: &str) -> Option<&'a str> {
    schema.get(key)?.as_str()
}

fn type_name(schema: &Value) -> &str {
    text(schema, "type").unwrap_or("")
}

fn is_true(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn list<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).unwrap_or_default()
}

fn properties(schema: &Value) -> impl ExactSizeIterator<Item = (&str, &Value)> {
    static NONE: crate::Object = crate::Object::new();
    schema.get("properties").and_then(Value::as_object).unwrap_or(&NONE).iter()
}

/// Returns the schema under `key`; [`None`] if the value is a boolean or a list.
fn schema_at<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema.get(key).filter(|inner| inner.as_object().is_some())
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
