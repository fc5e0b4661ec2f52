//! A node of schema validation: a type, or a schema under a junctor.

use crate::schema::{JsonType, NestedValidation, Rules, Schema, Shape};
use crate::{Object, Value};

#[derive(Clone, Copy)]
pub(super) enum Node<'a> {
    Type(Schema<'a>),
    Nested(&'a NestedValidation),
}

/// Whether a type comes from a CRD: such types have no Go name.
pub(super) fn is_custom(schema: Schema<'_>) -> bool {
    schema.ty().name.is_empty()
}

impl<'a> Node<'a> {
    pub(super) fn rules(self) -> Option<&'a Rules> {
        match self {
            Self::Type(schema) => schema.ty().rules.as_deref(),
            Self::Nested(nested) => Some(&nested.rules),
        }
    }

    /// Returns the allowed JSON types; empty means any.
    pub(super) fn json_types(self) -> &'static [JsonType] {
        match self {
            Self::Nested(nested) => nested.json_type.map_or(&[], only),
            Self::Type(schema) if schema.ty().rules.as_ref().is_some_and(|rules| rules.untyped) => &[],
            Self::Type(schema) => match schema.shape() {
                Shape::Any | Shape::Either(_) | Shape::RawExtension | Shape::FieldsV1 => &[],
                Shape::Bool => &[JsonType::Boolean],
                Shape::Int32 | Shape::Int64 => &[JsonType::Integer],
                Shape::Double => &[JsonType::Number],
                Shape::String | Shape::Bytes | Shape::Quantity | Shape::Time | Shape::MicroTime => &[JsonType::String],
                Shape::IntOrString => &[JsonType::Integer, JsonType::String],
                Shape::List(_) => &[JsonType::Array],
                Shape::Map(_) | Shape::Struct(_) => &[JsonType::Object],
            },
        }
    }

    /// Whether a scalar has the shape of its type and no other rules apply, which holds for nearly every value.
    pub(super) fn is_plain(self, value: &Value) -> bool {
        let Self::Type(schema) = self else { return false };
        schema.ty().rules.is_none()
            && match (schema.shape(), value) {
                (Shape::String | Shape::Quantity | Shape::Time | Shape::MicroTime | Shape::Bytes, Value::String(_))
                | (Shape::IntOrString, Value::String(_) | Value::Int(_))
                | (Shape::Bool, Value::Bool(_))
                | (Shape::Int64, Value::Int(_))
                | (Shape::Double, Value::Int(_) | Value::Float(_)) => true,
                (Shape::Int32, Value::Int(int)) => i32::try_from(*int).is_ok(),
                _ => false,
            }
    }

    /// Whether `null` is valid. In a built-in type `null` is Go's encoding of nil.
    pub(super) fn allows_null(self) -> bool {
        match self {
            Self::Type(schema) => schema.ty().nullable || !is_custom(schema),
            Self::Nested(nested) => nested.json_type.is_none(),
        }
    }

    pub(super) fn item(self) -> Option<Self> {
        match self {
            Self::Type(schema) => schema.item().map(Self::Type),
            Self::Nested(nested) => nested.items.as_deref().map(Self::Nested),
        }
    }

    /// Calls `missing` with each required field that is absent.
    pub(super) fn required(self, object: &Object, mut missing: impl FnMut(&str)) {
        match (self, self.rules()) {
            (Self::Type(schema), None) if !is_custom(schema) => {
                let Shape::Struct(shape) = schema.shape() else { return };
                for field in shape.fields.iter().filter(|field| field.required) {
                    if object.get(&field.name).is_none_or(Value::is_null) {
                        missing(&field.name);
                    }
                }
            }
            (_, Some(rules)) => {
                rules.object.required.iter().filter(|name| !object.contains_key(name)).for_each(|name| missing(name));
            }
            (_, None) => {}
        }
    }
}

const fn only(one: JsonType) -> &'static [JsonType] {
    match one {
        JsonType::Array => &[JsonType::Array],
        JsonType::Boolean => &[JsonType::Boolean],
        JsonType::Integer => &[JsonType::Integer],
        JsonType::Number => &[JsonType::Number],
        JsonType::Object => &[JsonType::Object],
        JsonType::String => &[JsonType::String],
    }
}
