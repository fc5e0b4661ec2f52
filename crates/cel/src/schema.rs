//! What a schema says to the language: types of fields, escaped names, and how large values can get.

mod escape;
mod size;

use std::sync::Arc;

use machinery::Schema;
use machinery::schema::structural::Structural;
use machinery::schema::{FormatKind, Shape, Types};

use crate::types::{SchemaType, Type};

pub use escape::{escape, unescape};
pub use size::{elements_max, occurrences_max};

/// A set of types that an environment refers to.
#[derive(Clone, Debug)]
pub enum TypeSet {
    /// One that lives as long as the program, such as the catalogue.
    Static(&'static Types),
    /// One that came at run time.
    Shared(Arc<Types>),
    /// The schema of a CRD.
    Structural(Arc<Structural>),
}

/// What the strings of a type stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StringKind {
    /// Themselves.
    Plain,
    /// Bytes in base64.
    Bytes,
    /// A point in time.
    Time,
    /// A day.
    Date,
    /// A span of time.
    Duration,
}

impl TypeSet {
    /// The types.
    pub fn types(&self) -> &Types {
        match self {
            Self::Static(types) => types,
            Self::Shared(types) => types,
            Self::Structural(schema) => schema.types(),
        }
    }
}

/// What the strings of a type stand for.
pub fn string_kind(schema: Schema<'_>) -> StringKind {
    match schema.shape() {
        Shape::Bytes => StringKind::Bytes,
        Shape::Time | Shape::MicroTime => StringKind::Time,
        Shape::String => {
            let format = schema.ty().rules.as_ref().and_then(|rules| rules.format.as_ref());
            match format.map(|format| format.kind) {
                Some(FormatKind::Byte) => StringKind::Bytes,
                Some(FormatKind::DateTime) => StringKind::Time,
                Some(FormatKind::Date) => StringKind::Date,
                Some(FormatKind::Duration) => StringKind::Duration,
                _ => StringKind::Plain,
            }
        }
        _ => StringKind::Plain,
    }
}

/// The type of the values of `of`; none if expressions cannot see them, since nothing is known about them.
pub fn type_of(sets: &[TypeSet], of: &SchemaType) -> Option<Type> {
    let schema = sets[of.set as usize].types().schema(of.id);
    let inner = |id, suffix: &str| {
        let schema = sets[of.set as usize].types().schema(id);
        let root = matches!(schema.shape(), Shape::Struct(inner) if inner.embedded);
        let name = format!("{}{suffix}", of.name).into();
        type_of(sets, &SchemaType { set: of.set, id, root, name })
    };
    Some(match schema.shape() {
        Shape::Any => return None,
        Shape::Bool => Type::Bool,
        Shape::Int32 | Shape::Int64 => Type::Int,
        Shape::Double => Type::Double,
        Shape::String | Shape::Bytes | Shape::Time | Shape::MicroTime => match string_kind(schema) {
            StringKind::Plain => Type::String,
            StringKind::Bytes => Type::Bytes,
            StringKind::Time | StringKind::Date => Type::Timestamp,
            StringKind::Duration => Type::Duration,
        },
        // A quantity is a number or a string in JSON, like an integer or string.
        Shape::IntOrString | Shape::Quantity | Shape::Either(_) => Type::Dyn,
        Shape::List(list) => Type::list(inner(list.item, ".@idx")?),
        Shape::Map(map) => Type::map(Type::String, inner(map.value, ".@elem")?),
        Shape::RawExtension | Shape::FieldsV1 | Shape::Struct(_) => Type::Schema(of.clone()),
    })
}

/// The property that a field name in an expression stands for, and its type.
pub fn field(sets: &[TypeSet], of: &SchemaType, name: &str) -> Option<(String, Type)> {
    let property = property(&sets[of.set as usize], name)?;
    if of.root && matches!(property.as_str(), "apiVersion" | "kind") {
        return Some((property, Type::String));
    }
    let schema = sets[of.set as usize].types().schema(of.id);
    let named = || Arc::from(format!("{}.{name}", of.name));
    let Some((field, _)) = schema.field(&property) else {
        // Every whole object has a name, whether its schema says so or not.
        return (of.root && property == "metadata").then(|| {
            let meta = SchemaType { set: 0, id: size::object_meta(), root: false, name: named() };
            (property, Type::Schema(meta))
        });
    };
    let schema = sets[of.set as usize].types().schema(field.ty);
    let root = matches!(schema.shape(), Shape::Struct(inner) if inner.embedded);
    let ty = type_of(sets, &SchemaType { set: of.set, id: field.ty, root, name: named() })?;
    Some((property, ty))
}

/// The property that a field name stands for. Only a CRD's properties must be escaped where they are reserved words.
fn property(set: &TypeSet, name: &str) -> Option<String> {
    let plain = || (!matches!(set, TypeSet::Structural(_)) && !name.contains("__")).then(|| name.to_owned());
    unescape(name).or_else(plain)
}

/// The set that every environment has first: the metadata that whole objects have without saying so.
pub fn builtin() -> TypeSet {
    TypeSet::Static(size::builtin())
}
