//! CEL types of schemas: field types, escaped names, and size limits.

mod escape;
mod size;

use std::sync::Arc;

use apimachinery::Schema;
use apimachinery::schema::structural::Structural;
use apimachinery::schema::{FormatKind, Shape, Types};

use crate::types::{SchemaType, Type};

pub use escape::{escape, unescape};
pub use size::{elements_max, occurrences_max};

/// A set of types that an environment refers to.
#[derive(Clone, Debug)]
pub enum TypeSet {
    /// Types that live as long as the process, such as those of the built-in kinds.
    Static(&'static Types),
    /// Types created at runtime.
    Shared(Arc<Types>),
    /// The schema of a CRD.
    Structural(Arc<Structural>),
}

/// The meaning of the strings of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StringKind {
    Plain,
    /// Bytes in base64.
    Bytes,
    Time,
    Date,
    Duration,
}

impl TypeSet {
    pub fn types(&self) -> &Types {
        match self {
            Self::Static(types) => types,
            Self::Shared(types) => types,
            Self::Structural(schema) => schema.types(),
        }
    }
}

/// Returns the meaning of the strings of a type.
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

/// Returns the CEL type of the values of `of`; [`None`] if their type is unknown, which hides them from expressions.
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
        // A quantity is a number or a string in JSON, like an int-or-string.
        Shape::IntOrString | Shape::Quantity | Shape::Either(_) => Type::Dyn,
        Shape::List(list) => Type::list(inner(list.item, ".@idx")?),
        Shape::Map(map) => Type::map(Type::String, inner(map.value, ".@elem")?),
        Shape::RawExtension | Shape::FieldsV1 | Shape::Struct(_) => Type::Schema(of.clone()),
    })
}

/// Returns the property that a field name in an expression refers to, and its type.
pub fn field(sets: &[TypeSet], of: &SchemaType, name: &str) -> Option<(String, Type)> {
    let property = property(&sets[of.set as usize], name)?;
    if of.root && matches!(property.as_str(), "apiVersion" | "kind") {
        return Some((property, Type::String));
    }
    let schema = sets[of.set as usize].types().schema(of.id);
    let named = || Arc::from(format!("{}.{name}", of.name));
    let Some((field, _)) = schema.field(&property) else {
        // Every root object has metadata, even if its schema does not declare it.
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

/// Returns the property that a field name refers to. Reserved words must be escaped only in properties of a CRD.
fn property(set: &TypeSet, name: &str) -> Option<String> {
    let plain = || (!matches!(set, TypeSet::Structural(_)) && !name.contains("__")).then(|| name.to_owned());
    unescape(name).or_else(plain)
}

/// Returns the first type set of every environment: the metadata of root objects.
pub fn builtin() -> TypeSet {
    TypeSet::Static(size::builtin())
}
