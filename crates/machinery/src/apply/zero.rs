//! The empty object of a type, as Go writes it: what the first version of an object is compared with.

use crate::schema::{Field, Omit, Shape, Struct};
use crate::{Object, Schema, Value};

/// The object of which nothing is set. Fields that Go always writes are there, so nobody comes to own them by
/// creating an object.
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

/// What Go writes for a field that is not set, if it writes it.
fn written(schema: Schema<'_>, field: &Field) -> Option<Value> {
    let ty = schema.other(field.ty);
    match field.omit {
        Omit::Never if field.pointer => Some(Value::Null),
        Omit::Never => Some(zero(ty)),
        // `omitempty` knows no empty struct, and these are structs in Go.
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
