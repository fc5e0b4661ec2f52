//! Maximum sizes of values in one request, used by cost estimation.

use std::sync::LazyLock;

use apimachinery::Schema;
use apimachinery::schema::{Field, Omit, Patch, Shape, Struct, Type, TypeId, Types};

use super::{StringKind, string_kind};
use crate::cost::limits::REQUEST_BYTES;

/// The types that exist without a schema, and the ID of the metadata type.
static BUILTIN: LazyLock<(Types, TypeId)> = LazyLock::new(|| {
    let mut types = Types::new();
    let string = types.add(Type::new("string", Shape::String));
    let field = |name: &str| Field {
        name: name.into(),
        ty: string,
        required: false,
        omit: Omit::Never,
        pointer: false,
        default: None,
        patch: Patch::default(),
        inlined: Box::default(),
    };
    let fields = Box::new([field("generateName"), field("name")]);
    let meta = types.add(Type::new("metadata", Shape::Struct(Struct { fields, ..Struct::default() })));
    (types, meta)
});

/// Returns the types that exist without a schema.
pub(super) fn builtin() -> &'static Types {
    &BUILTIN.0
}

/// Returns the type of the metadata of a root object whose schema does not describe it.
pub(super) fn object_meta() -> TypeId {
    BUILTIN.1
}

/// Returns the minimum number of bytes of a value of the type in JSON.
fn bytes_min(schema: Schema<'_>, depth: u8) -> u64 {
    match schema.shape() {
        Shape::Bool => 4,
        Shape::Int32 | Shape::Int64 | Shape::Double | Shape::IntOrString => 1,
        Shape::String | Shape::Bytes | Shape::Quantity | Shape::Time | Shape::MicroTime => match string_kind(schema) {
            StringKind::Plain | StringKind::Bytes => 2,
            StringKind::Time => 20,
            StringKind::Date => 10,
            StringKind::Duration => 4,
        },
        // The depth limit ends the recursion of recursive types; only required fields count.
        Shape::Struct(of) if depth < 16 => {
            of.fields.iter().filter(|field| field.required && field.default.is_none()).fold(2, |total, field| {
                total + field.name.len() as u64 + bytes_min(schema.other(field.ty), depth + 1) + 4
            })
        }
        _ => 2,
    }
}

/// Returns the maximum number of values of the type in one request.
pub fn occurrences_max(schema: Schema<'_>) -> u64 {
    REQUEST_BYTES / (bytes_min(schema, 0) + 1)
}

/// Returns the maximum number of characters, items or entries of a value of the type; 0 for types without a size.
pub fn elements_max(schema: Schema<'_>) -> u64 {
    let limits = Limits::of(schema);
    match schema.shape() {
        Shape::String | Shape::Bytes | Shape::Time | Shape::MicroTime => match string_kind(schema) {
            // A length limit counts characters, each of which can take four bytes.
            StringKind::Plain => {
                limits.length.map_or_else(|| limits.longest.unwrap_or(REQUEST_BYTES - 2), |max| max * 4)
            }
            StringKind::Bytes => limits.length.unwrap_or(REQUEST_BYTES - 2),
            StringKind::Time => 30,
            StringKind::Date => 10,
            StringKind::Duration => 32,
        },
        Shape::IntOrString | Shape::Quantity => limits.length.map_or(REQUEST_BYTES - 2, |max| max * 4),
        Shape::List(list) => {
            limits.items.unwrap_or_else(|| (REQUEST_BYTES - 2) / (bytes_min(schema.other(list.item), 0) + 1))
        }
        Shape::Map(map) => {
            limits.properties.unwrap_or_else(|| (REQUEST_BYTES - 2) / (bytes_min(schema.other(map.value), 0) + 6))
        }
        _ => 0,
    }
}

/// The limits that a schema declares.
#[derive(Default)]
struct Limits {
    length: Option<u64>,
    longest: Option<u64>,
    items: Option<u64>,
    properties: Option<u64>,
}

impl Limits {
    fn of(schema: Schema<'_>) -> Self {
        let Some(rules) = &schema.ty().rules else { return Self::default() };
        let limit = |max: Option<i64>| max.map(|max| u64::try_from(max).unwrap_or(0));
        Self {
            length: limit(rules.string.characters_max),
            longest: rules.values.iter().filter_map(|value| value.as_str()).map(|text| text.len() as u64).max(),
            items: limit(rules.list.items_max),
            properties: limit(rules.object.keys_max),
        }
    }
}
