//! Empty lists and maps after Go has stored them as protobuf, which cannot distinguish them from absent ones.

use crate::Value;
use crate::schema::{Omit, Schema, Shape};

/// Replaces empty lists and maps with what Go encodes after storing and reading them: `null` if the field is always
/// encoded, otherwise nothing. The tree must match the type.
pub fn drop_empty(value: &mut Value, schema: Schema<'_>) {
    match (schema.shape(), value) {
        (Shape::Struct(shape), Value::Object(object)) => {
            let mut next = 0;
            let mut drops_any = false;
            for (key, value) in object.entries_mut() {
                let Some(found) = shape.find(next, key) else { continue };
                let field = &shape.fields[found];
                let ty = schema.other(field.ty);
                next = found + 1;
                if is_emptied(value, ty) {
                    *value = Value::Null;
                    drops_any |= field.omit != Omit::Never;
                } else {
                    drop_empty(value, ty);
                }
            }
            if drops_any {
                let stays = |key: &str| schema.field(key).is_none_or(|(field, _)| field.omit == Omit::Never);
                object.entries_mut().retain(|(key, value)| !value.is_null() || stays(key));
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            let ty = schema.other(list.item);
            items.iter_mut().for_each(|item| drop_empty(item, ty));
        }
        (Shape::Map(map), Value::Object(object)) => {
            let ty = schema.other(map.value);
            for (_, value) in object.iter_mut() {
                if is_emptied(value, ty) {
                    *value = Value::Null;
                } else {
                    drop_empty(value, ty);
                }
            }
        }
        _ => {}
    }
}

fn is_emptied(value: &Value, ty: Schema<'_>) -> bool {
    match (ty.shape(), value) {
        (Shape::List(_), Value::Array(items)) => items.is_empty(),
        (Shape::Map(_), Value::Object(object)) => object.is_empty(),
        _ => false,
    }
}
