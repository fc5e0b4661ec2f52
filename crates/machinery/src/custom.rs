//! What becomes of a custom resource when upstream decodes it: unknown fields go, and metadata is what Go would keep.
//!
//! The schema of a custom resource does not describe metadata, neither its own nor that of resources embedded in it: all
//! of that is what every object has ([`Schema::envelope`]).

use crate::conform::{self, conform};
use crate::pruning::prune;
use crate::schema::{Schema, Shape};
use crate::{Path, Value, field};

/// Why a tree is no object of its kind.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its own metadata cannot be read.
    #[error(transparent)]
    Metadata(#[from] conform::Error),
    /// A resource embedded in it cannot be read.
    #[error("{0}")]
    Embedded(field::Error),
}

/// Drops what the schema and the type of metadata do not name, and gives the paths of what is gone: those in its own
/// metadata, those that the schema lacks, those in the metadata of embedded resources.
pub fn decode(object: &mut Value, schema: Schema<'_>) -> Result<Vec<String>, Error> {
    let mut unknown = Vec::new();
    if let (Some(ty), Some(metadata)) = (schema.envelope(METADATA), object.get_mut(METADATA)) {
        unknown.extend(conform(metadata, ty)?.into_iter().map(|path| format!("{METADATA}.{path}")));
    }
    unknown.append(&mut prune(object, schema));
    inside(object, schema, &Path::ROOT, &mut unknown).map_err(Error::Embedded)?;
    Ok(unknown)
}

const METADATA: &str = "metadata";

/// Looks for embedded resources below a value.
fn inside(value: &mut Value, schema: Schema<'_>, path: &Path, unknown: &mut Vec<String>) -> Result<(), field::Error> {
    match (value, schema.shape()) {
        (Value::Object(object), Shape::Struct(_)) => object.iter_mut().try_for_each(|(key, value)| {
            schema.field(key).map_or(Ok(()), |(_, ty)| one(value, ty, &path.field(key), unknown))
        }),
        (Value::Object(object), Shape::Map(map)) => {
            let ty = schema.other(map.value);
            object.iter_mut().try_for_each(|(key, value)| one(value, ty, &path.key(key), unknown))
        }
        (Value::Array(items), Shape::List(list)) => {
            let ty = schema.other(list.item);
            items.iter_mut().enumerate().try_for_each(|(at, item)| one(item, ty, &path.index(at), unknown))
        }
        _ => Ok(()),
    }
}

/// A value below another, which may be an embedded resource itself.
fn one(value: &mut Value, schema: Schema<'_>, path: &Path, unknown: &mut Vec<String>) -> Result<(), field::Error> {
    if matches!(schema.shape(), Shape::Struct(shape) if shape.embedded) {
        embedded(value, schema, path, unknown)?;
    }
    inside(value, schema, path, unknown)
}

fn embedded(value: &mut Value, schema: Schema<'_>, path: &Path, unknown: &mut Vec<String>) -> Result<(), field::Error> {
    let Value::Object(fields) = value else { return Ok(()) };
    for key in ["apiVersion", "kind"] {
        if let Some(wrong) = fields.get(key).filter(|value| value.as_str().is_none()) {
            return Err(field::Error::invalid(&path.field(key), wrong.clone(), "must be a string"));
        }
    }
    let path = path.field(METADATA);
    if let (Some(ty), Some(metadata)) = (schema.envelope(METADATA), fields.get_mut(METADATA)) {
        let sent = metadata.clone();
        let found = conform(metadata, ty).map_err(|error| field::Error::invalid(&path, sent, error.to_string()))?;
        unknown.extend(found.into_iter().map(|field| format!("{path}.{field}")));
    }
    Ok(())
}
