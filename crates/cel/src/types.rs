//! CEL types and their names in messages.

use std::fmt;
use std::sync::Arc;

use apimachinery::schema::TypeId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Any value; checked during evaluation.
    Dyn,
    /// The type of an invalid expression, assignable to everything so that one mistake is reported once.
    Error,
    /// `null`
    Null,
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `uint`
    Uint,
    /// `double`
    Double,
    /// `string`
    String,
    /// `bytes`
    Bytes,
    /// `google.protobuf.Timestamp`
    Timestamp,
    /// `google.protobuf.Duration`
    Duration,
    /// `list(T)`
    List(Arc<Type>),
    /// `map(K, V)`
    Map(Arc<Type>, Arc<Type>),
    /// `optional_type(T)`
    Optional(Arc<Type>),
    /// The type of a type.
    Type(Arc<Type>),
    /// A parameter of a declaration or, once instantiated, a type variable of the checker.
    Param(Param),
    /// A library type, such as `kubernetes.Quantity`.
    Opaque(&'static str),
    /// An object described by a schema.
    Schema(SchemaType),
    /// An object under construction for a mutation: `Object`, `Object.spec`, `JSONPatch`.
    PartialObject(Arc<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Param {
    /// As declared: `T`.
    Declared(u8),
    /// A type variable for one use of the declaration.
    Fresh(u32),
}

/// A type of one of an environment's schemas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaType {
    /// The index of the environment's type set.
    pub set: u16,
    /// The type in that set.
    pub id: TypeId,
    /// Whether this is a root object, which has `apiVersion`, `kind` and `metadata` even if the schema does not declare
    /// them.
    pub root: bool,
    /// The name in messages and in `type()`.
    pub name: Arc<str>,
}

impl Type {
    /// Returns `list(item)`.
    pub fn list(item: Self) -> Self {
        Self::List(Arc::new(item))
    }

    /// Returns `map(key, value)`.
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// Returns `optional_type(inner)`.
    pub fn optional(inner: Self) -> Self {
        Self::Optional(Arc::new(inner))
    }

    /// Whether the type is checked during evaluation.
    pub const fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Returns the component types.
    pub fn parts(&self) -> Vec<&Self> {
        match self {
            Self::List(item) | Self::Optional(item) | Self::Type(item) => vec![item],
            Self::Map(key, value) => vec![key, value],
            _ => Vec::new(),
        }
    }

    /// Returns the name that `type()` prints for a value of this type, without parameters.
    pub fn runtime_name(&self) -> &str {
        match self {
            Self::Dyn => "dyn",
            Self::Error => "!error!",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(..) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Param(_) => "T",
            Self::Opaque(name) => name,
            Self::Schema(SchemaType { name, .. }) | Self::PartialObject(name) => name,
        }
    }

    /// Returns the type of a name in an expression: `int`, `google.protobuf.Duration`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "bool" => Self::Bool,
            "bytes" => Self::Bytes,
            "double" => Self::Double,
            "dyn" => Self::Dyn,
            "google.protobuf.Duration" => Self::Duration,
            "google.protobuf.Timestamp" => Self::Timestamp,
            "int" => Self::Int,
            "list" => Self::list(Self::Dyn),
            "map" => Self::map(Self::Dyn, Self::Dyn),
            "null_type" => Self::Null,
            "optional_type" => Self::optional(Self::Dyn),
            "string" => Self::String,
            "type" => Self::Type(Arc::new(Self::Dyn)),
            "uint" => Self::Uint,
            _ => return None,
        })
    }
}

/// cel-go's notation in messages: `map(string, list(int))`.
impl fmt::Display for Type {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => out.write_str("null"),
            Self::Timestamp => out.write_str("timestamp"),
            Self::Duration => out.write_str("duration"),
            Self::List(item) => write!(out, "list({item})"),
            Self::Map(key, value) => write!(out, "map({key}, {value})"),
            Self::Optional(inner) => write!(out, "optional_type({inner})"),
            Self::Type(inner) => write!(out, "type({inner})"),
            Self::Param(Param::Declared(letter)) => write!(out, "{}", char::from(*letter)),
            Self::Param(Param::Fresh(number)) => write!(out, "_var{number}"),
            plain => out.write_str(plain.runtime_name()),
        }
    }
}
