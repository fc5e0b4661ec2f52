//! The types of the language, and how they print in messages.

use std::fmt;
use std::sync::Arc;

use machinery::schema::TypeId;

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Any value; checked when evaluated.
    Dyn,
    /// The type of a wrong expression, which fits everywhere so that one mistake is told once.
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
    /// A parameter of a declaration, or once instantiated a variable of the checker.
    Param(Param),
    /// A type of a library, such as `kubernetes.Quantity`.
    Opaque(&'static str),
    /// An object described by a schema.
    Schema(SchemaType),
    /// An object under construction for a mutation: `Object`, `Object.spec`, `JSONPatch`.
    Built(Arc<str>),
}

/// A type parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Param {
    /// As declared: `T`.
    Declared(u8),
    /// Made fresh for one use of the declaration.
    Fresh(u32),
}

/// A type of one of an environment's schemas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaType {
    /// Which of the environment's sets of types.
    pub set: u16,
    /// Which type of that set.
    pub id: TypeId,
    /// Whether the fields that every whole object has are there although the schema does not name them.
    pub root: bool,
    /// What messages and `type()` call it.
    pub name: Arc<str>,
}

impl Type {
    /// `list(item)`
    pub fn list(item: Self) -> Self {
        Self::List(Arc::new(item))
    }

    /// `map(key, value)`
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// `optional_type(inner)`
    pub fn optional(inner: Self) -> Self {
        Self::Optional(Arc::new(inner))
    }

    /// Whether the checker leaves this to the evaluator.
    pub const fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// The types this one is made of.
    pub fn parts(&self) -> Vec<&Self> {
        match self {
            Self::List(item) | Self::Optional(item) | Self::Type(item) => vec![item],
            Self::Map(key, value) => vec![key, value],
            _ => Vec::new(),
        }
    }

    /// What `type()` of a value of this type prints as: parameters are not part of it.
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
            Self::Schema(SchemaType { name, .. }) | Self::Built(name) => name,
        }
    }

    /// The type that a name stands for in an expression: `int`, `google.protobuf.Duration`.
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

/// As cel-go prints types in messages: `map(string, list(int))`.
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
