//! Type errors of patched trees: upstream converts a patched tree to its Go type without decoding it again.

use super::super::gofmt::{Plain, type_name};
use crate::schema::{Schema, Shape, Struct};
use crate::{Object, Value};

/// A tree does not match its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TypeMismatch {
    #[error("cannot restore map from {0}")]
    Map(&'static str),
    #[error("cannot restore slice from {0}")]
    Slice(&'static str),
    #[error("cannot restore struct from: {0}")]
    Struct(&'static str),
    /// A number in place of a string, or a number that does not fit.
    #[error("cannot convert {0} to {1}")]
    Convert(&'static str, String),
    #[error("unrecognized type: {0}")]
    Scalar(&'static str),
}

/// Fails at the first value of the wrong type, in the field order of the Go types. Types with their own decoder, such
/// as quantities and times, are not checked.
pub fn check_types(value: &Value, schema: Schema<'_>) -> Result<(), TypeMismatch> {
    let convert = || Err(TypeMismatch::Convert(type_name(value), schema.ty().name.to_string()));
    match (schema.shape(), value) {
        (_, Value::Null) => Ok(()),
        (Shape::Struct(shape), Value::Object(object)) => check_fields(object, shape, schema),
        (Shape::Struct(_), other) => Err(TypeMismatch::Struct(go_kind(other))),
        (Shape::Map(map), Value::Object(object)) => {
            object.values().try_for_each(|value| check_types(value, schema.other(map.value)))
        }
        (Shape::Map(_), other) => Err(TypeMismatch::Map(go_kind(other))),
        (Shape::List(list), Value::Array(items)) => {
            items.iter().try_for_each(|item| check_types(item, schema.other(list.item)))
        }
        (Shape::List(_), other) => Err(TypeMismatch::Slice(go_kind(other))),
        (Shape::String, Value::Int(_)) => convert(),
        (Shape::Int32 | Shape::Int64, Value::Float(float)) if float.fract() != 0.0 => convert(),
        (shape, value) => match scalar_type(shape) {
            Some(name) if !is_scalar_of(shape, value) => Err(TypeMismatch::Scalar(name)),
            _ => Ok(()),
        },
    }
}

/// Returns the Go type of a scalar.
fn scalar_type(shape: &Shape) -> Option<&'static str> {
    Some(match shape {
        Shape::String => "string",
        Shape::Bool => "bool",
        Shape::Int32 => "int32",
        Shape::Int64 => "int64",
        Shape::Double => "float64",
        _ => return None,
    })
}

fn is_scalar_of(shape: &Shape, value: &Value) -> bool {
    matches!(
        (shape, value),
        (_, Value::Null)
            | (Shape::String, Value::String(_))
            | (Shape::Bool, Value::Bool(_))
            | (Shape::Int32 | Shape::Int64 | Shape::Double, Value::Int(_) | Value::Float(_))
    )
}

/// Formats a patch as in upstream's messages: `map[metadata:map[labels:a]]`.
pub fn quoted(patch: &Object) -> String {
    Plain(&Value::Object(patch.clone())).to_string()
}

fn check_fields(object: &Object, shape: &Struct, schema: Schema<'_>) -> Result<(), TypeMismatch> {
    let mut fields: Vec<usize> = (0..shape.fields.len()).collect();
    fields.sort_by_key(|at| shape.order.get(*at));
    fields.into_iter().try_for_each(|at| {
        let field = &shape.fields[at];
        object.get(&field.name).map_or(Ok(()), |value| check_types(value, schema.other(field.ty)))
    })
}

/// Returns the `reflect.Kind` of a decoded value.
const fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
        scalar => type_name(scalar),
    }
}
