//! The zero value of a type as Go serializes it, with which a new object is compared.

use crate::schema::{Field, Omit, Shape, Struct};
use crate::{Object, Schema, Value};

/// Returns the object without set fields. It contains the fields that Go always serializes, so that creating an object
/// does not make the manager own them.
pub fn zero(schema: Schema<'_>) -> Value {
    match schema.shape() {
        Shape::Bool => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::Double | Shape::IntOrString => Value::Int(0),
        Shape::String => Value::String("".into()),
        Shape::Quantity => Value::String("0".into()),
        Shape::Struct(Struct { fields, .. }) => {
            let written = fields.iter().filter_map(|field| Some((field.name.clone(), written(schema, field)?)));
            Value::Object(Object::from_entries(written.collect(), |_| {}))
        }
        _ => Value::Null,
    }
}

/// Returns Go's serialization of an unset field; [`None`] if Go omits the field.
fn written(schema: Schema<'_>, field: &Field) -> Option<Value> {
    let ty = schema.other(field.ty);
    match field.omit {
        Omit::Never if field.pointer => Some(Value::Null),
        Omit::Never => Some(zero(ty)),
        // `omitempty` never omits structs, and these types are structs in Go.
        Omit::Empty if !field.pointer => match ty.shape() {
            Shape::Struct(_)
            | Shape::Time
            | Shape::MicroTime
            | Shape::Quantity
            | Shape::IntOrString
            | Shape::RawExtension => Some(zero(ty)),
            _ => None,
        },
        Omit::Empty | Omit::Zero => None,
    }
}
