//! Types from the OpenAPI v3 schema of a CRD, and what upstream refuses in such a schema.

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
    /// Makes types of a schema (`openAPIV3Schema`). A schema in which [`check`] finds nothing always succeeds.
    pub fn new(schema: &Value) -> Result<Self, Error> {
        build::types(schema).map(|(types, root)| Self { types: Arc::new(types), root })
    }

    /// The same, where embedded resources and the whole object have what `envelope` has: `apiVersion`, `kind` and
    /// `metadata`.
    pub fn enveloped(schema: &Value, envelope: Schema<'static>) -> Result<Self, Error> {
        build::types(schema).map(|(types, root)| Self { types: Arc::new(types.enveloped(envelope)), root })
    }

    /// The type of the whole object.
    pub fn schema(&self) -> Schema<'_> {
        self.types.schema(self.root)
    }

    /// All types, for those who refer to them by number.
    pub fn types(&self) -> &Types {
        &self.types
    }

    /// All types, for those who keep them.
    pub fn shared(&self) -> Arc<Types> {
        Arc::clone(&self.types)
    }

    /// The number of the type of the whole object.
    pub const fn root(&self) -> TypeId {
        self.root
    }
}

/// Everything upstream would refuse in a schema that stands at `path`: what makes it not structural, defaults that do
/// not fit their own schema, and misuse of OpenAPI and of the `x-kubernetes-` extensions.
///
/// CEL rules are only looked at, not compiled.
pub fn check(schema: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if is_true(schema, "nullable") {
        errors.push(crate::field::Error::forbidden(&path.field("nullable"), "nullable cannot be true at the root"));
    }
    let mut structural = Errors::new();
    invariants::check(schema, path, &mut structural);
    completeness::check(schema, path, &mut structural);
    structural.sort_by_cached_key(ToString::to_string);
    // Defaults are only worth checking against a schema that is sound itself.
    if structural.is_empty()
        && let Ok(types) = Structural::new(schema)
    {
        defaults::check(schema, types.schema(), path, &mut structural);
    }
    errors.append(&mut structural);
    openapi::check(schema, path, &mut errors);
    errors
}

/// The words of a schema, read without trusting their types: what is not of the type it should be counts as absent,
/// since decoding has refused it before.
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

/// The schema under `key`, if it is one rather than a boolean or a list.
fn schema_at<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema.get(key).filter(|inner| inner.as_object().is_some())
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
