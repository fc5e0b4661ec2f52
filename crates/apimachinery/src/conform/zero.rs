//! Go's zero values: their encoding, and the rules by which Go omits them.

use crate::schema::{Field, Omit, Schema, Shape};
use crate::{Object, Value};

/// Maximum depth of structs nested by value, above that of any real type. A type that contains itself has no zero
/// value in Go, and must not recurse forever here.
const DEPTH_MAX: usize = 8;

/// Returns Go's encoding of the zero value of a non-pointer type.
pub fn zero(schema: Schema<'_>) -> Value {
    zero_at(schema, DEPTH_MAX)
}

/// Whether `value` is the zero value of its type in any form. A struct is zero if each of its fields is.
pub fn is_zero(value: &Value, schema: Schema<'_>) -> bool {
    match (schema.shape(), value) {
        (_, Value::Null) => true,
        (Shape::Struct(_), Value::Object(object)) => object.iter().all(|(key, value)| {
            schema.field(key).is_some_and(|(field, ty)| {
                // A non-nil pointer is not zero, even if its target is.
                if field.pointer { value.is_null() } else { is_zero(value, ty) }
            })
        }),
        (Shape::Any | Shape::RawExtension | Shape::FieldsV1 | Shape::Either(_), _) => false,
        (Shape::Quantity, Value::String(text)) => text == "0",
        _ => is_empty(value),
    }
}

/// Returns Go's encoding of an absent field; [`None`] if Go omits it.
pub(super) fn absent(field: &Field, ty: Schema<'_>) -> Option<Value> {
    absent_at(field, ty, DEPTH_MAX)
}

/// Whether `omitempty` omits the value; not valid for structs.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) => true,
        Value::Float(float) => *float == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(true) | Value::Int(_) => false,
    }
}

/// Whether the type is a struct in Go, which `omitempty` never omits.
pub(super) const fn is_go_struct(shape: &Shape) -> bool {
    match shape {
        Shape::Any
        | Shape::IntOrString
        | Shape::Quantity
        | Shape::Time
        | Shape::MicroTime
        | Shape::RawExtension
        | Shape::FieldsV1
        | Shape::Struct(_)
        | Shape::Either(_) => true,
        Shape::Bool
        | Shape::Int32
        | Shape::Int64
        | Shape::Double
        | Shape::String
        | Shape::Bytes
        | Shape::List(_)
        | Shape::Map(_) => false,
    }
}

fn zero_at(schema: Schema<'_>, depth: usize) -> Value {
    match schema.shape() {
        Shape::Bool => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::IntOrString | Shape::Double => Value::Int(0),
        Shape::String => Value::from(""),
        Shape::Quantity => Value::from("0"),
        Shape::Any
        | Shape::Bytes
        | Shape::Time
        | Shape::MicroTime
        | Shape::RawExtension
        | Shape::FieldsV1
        | Shape::Either(_)
        | Shape::List(_)
        | Shape::Map(_) => Value::Null,
        Shape::Struct(shape) => {
            let mut object = Object::new();
            let Some(depth) = depth.checked_sub(1) else { return Value::Object(object) };
            for field in &shape.fields {
                if let Some(printed) = absent_at(field, schema.other(field.ty), depth) {
                    object.insert(field.name.clone(), printed);
                }
            }
            Value::Object(object)
        }
    }
}

fn absent_at(field: &Field, ty: Schema<'_>, depth: usize) -> Option<Value> {
    match (field.omit, field.pointer) {
        (Omit::Never, true) => Some(Value::Null),
        (Omit::Never, false) => Some(zero_at(ty, depth)),
        (Omit::Empty, false) if is_go_struct(ty.shape()) => Some(zero_at(ty, depth)),
        (Omit::Empty | Omit::Zero, _) => None,
    }
}
