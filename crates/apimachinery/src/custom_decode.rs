//! Decoding of custom resources: removes unknown fields and normalizes metadata as upstream does.
//!
//! The schema of a custom resource does not describe metadata, neither its own nor that of embedded resources. The
//! schema of all metadata is [`Schema::envelope`].

use crate::conform::{self, conform};
use crate::pruning::prune;
use crate::schema::{Schema, Shape};
use crate::{Path, Value, field};

/// A tree is not a valid custom resource.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The metadata of the object is invalid.
    #[error(transparent)]
    Metadata(#[from] conform::Error),
    /// The metadata of an embedded resource is invalid.
    #[error("{0}")]
    Embedded(field::Error),
}

/// Removes the fields that neither the schema nor the metadata type declares. Returns their paths in this order: the
/// object's own metadata, fields missing in the schema, metadata of embedded resources.
pub fn decode(object: &mut Value, schema: Schema<'_>) -> Result<Vec<String>, Error> {
    let mut unknown = Vec::new();
    if let (Some(ty), Some(metadata)) = (schema.envelope(METADATA), object.get_mut(METADATA)) {
        unknown.extend(conform(metadata, ty)?.into_iter().map(|path| format!("{METADATA}.{path}")));
    }
    unknown.append(&mut prune(object, schema));
    decode_embedded(object, schema, &Path::ROOT, &mut unknown).map_err(Error::Embedded)?;
    Ok(unknown)
}

const METADATA: &str = "metadata";

/// Decodes the embedded resources below a value.
fn decode_embedded(
    value: &mut Value,
    schema: Schema<'_>,
    path: &Path,
    unknown: &mut Vec<String>,
) -> Result<(), field::Error> {
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

/// Decodes a child value, which may be an embedded resource itself.
fn one(value: &mut Value, schema: Schema<'_>, path: &Path, unknown: &mut Vec<String>) -> Result<(), field::Error> {
    if matches!(schema.shape(), Shape::Struct(shape) if shape.embedded) {
        embedded(value, schema, path, unknown)?;
    }
    decode_embedded(value, schema, path, unknown)
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
