//! Limits that a CRD's schema puts on a value beyond its shape, and the schemas under `allOf`, `anyOf`, `oneOf`, `not`.

use super::pattern::Pattern;
use crate::{Str, Value};

/// Limits on a value beyond its shape. Each holds only for values of the JSON type it speaks of.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The schema names no type: a value of any JSON type has the shape.
    pub untyped: bool,
    /// Items of a list may have fields that the item's type does not name (`x-kubernetes-preserve-unknown-fields` on
    /// an array; structs and maps say it by their shape).
    pub preserve: bool,
    /// No key at all is allowed (`additionalProperties: false`).
    pub closed: bool,
    /// What strings or numbers look like in detail.
    pub format: Option<Format>,
    /// The only values allowed; none listed allows all.
    pub values: Box<[Value]>,
    /// Limits on numbers.
    pub number: NumberRules,
    /// Limits on strings.
    pub string: StringRules,
    /// Limits on lists.
    pub list: ListRules,
    /// Limits on objects.
    pub object: ObjectRules,
    /// Conditions on the value as a whole.
    pub junctors: Option<Box<Junctors>>,
    /// CEL rules as written; evaluated elsewhere.
    pub validations: Box<[Validation]>,
}

/// Limits on numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberRules {
    /// The greatest value allowed.
    pub maximum: Option<f64>,
    /// Whether the maximum itself is too great.
    pub exclusive_maximum: bool,
    /// The least value allowed.
    pub minimum: Option<f64>,
    /// Whether the minimum itself is too small.
    pub exclusive_minimum: bool,
    /// What values are whole multiples of.
    pub multiple_of: Option<f64>,
}

/// Limits on strings.
#[derive(Clone, Debug, Default)]
pub struct StringRules {
    /// The most characters allowed.
    pub characters_max: Option<i64>,
    /// The fewest characters allowed.
    pub characters_min: Option<i64>,
    /// What a part of the string must look like.
    pub pattern: Option<Pattern>,
}

/// Limits on lists.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListRules {
    /// The most items allowed.
    pub items_max: Option<i64>,
    /// The fewest items allowed.
    pub items_min: Option<i64>,
    /// Whether all items differ.
    pub unique: bool,
}

/// Limits on objects.
#[derive(Clone, Debug, Default)]
pub struct ObjectRules {
    /// The most keys allowed.
    pub keys_max: Option<i64>,
    /// The fewest keys allowed.
    pub keys_min: Option<i64>,
    /// The keys that must be there, in the schema's order.
    pub required: Box<[Str]>,
}

/// Conditions on a value as a whole.
#[derive(Clone, Debug, Default)]
pub struct Junctors {
    /// All of these hold.
    pub all_of: Box<[Nested]>,
    /// At least one of these holds.
    pub any_of: Box<[Nested]>,
    /// Exactly one of these holds.
    pub one_of: Box<[Nested]>,
    /// This does not hold.
    pub not: Option<Nested>,
}

/// A schema under a junctor. It restricts values whose shape is said outside, so it has rules but no shape.
#[derive(Clone, Debug, Default)]
pub struct Nested {
    /// The JSON type it asks for: only the two branches of an int-or-string do.
    pub json_type: Option<JsonType>,
    /// Limits on the value.
    pub rules: Rules,
    /// Limits on fields, sorted by name.
    pub properties: Box<[(Str, Nested)]>,
    /// Limits on items.
    pub items: Option<Box<Nested>>,
}

/// One rule of `x-kubernetes-validations`, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// The CEL expression.
    pub rule: Str,
    /// What to say when it does not hold.
    pub message: Str,
    /// A CEL expression that gives what to say.
    pub message_expression: Str,
    /// The reason of the error.
    pub reason: Option<Str>,
    /// Which field the error is about, from the value down.
    pub field_path: Str,
    /// Whether the rule is evaluated on create too, with an empty `oldSelf`.
    pub optional_old_self: Option<bool>,
}

/// What strings or numbers look like in detail, by its name in OpenAPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// As the schema writes it: `date-time`.
    pub name: Str,
    /// Which it is.
    pub kind: FormatKind,
}

/// The formats that Kubernetes checks; it ignores others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are OpenAPI's")]
pub enum FormatKind {
    Int32,
    Int64,
    Float,
    Double,
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
    Isbn,
    Isbn10,
    Isbn13,
    CreditCard,
    Ssn,
    HexColor,
    RgbColor,
    Byte,
    Password,
    Date,
    Duration,
    DateTime,
    Quantity,
    ShortName,
    LongName,
}

/// A type of JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are JSON Schema's")]
pub enum JsonType {
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    String,
}

impl JsonType {
    /// All of them, sorted by name.
    pub const ALL: [Self; 6] = [Self::Array, Self::Boolean, Self::Integer, Self::Number, Self::Object, Self::String];

    /// The type of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Its name in a schema.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Object => "object",
            Self::String => "string",
        }
    }

    /// The type a value has; `null` has none.
    pub const fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Null => return None,
            Value::Bool(_) => Self::Boolean,
            Value::Int(_) => Self::Integer,
            Value::Float(_) => Self::Number,
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        })
    }
}

impl Format {
    /// The format `name` of values of type `json_type`, if Kubernetes checks it there.
    pub fn named(name: &str, json_type: Option<JsonType>) -> Option<Self> {
        let kind = match json_type {
            Some(JsonType::Integer) => match name {
                "int32" => FormatKind::Int32,
                "int64" => FormatKind::Int64,
                _ => return None,
            },
            Some(JsonType::Number) => match name {
                "float" => FormatKind::Float,
                "double" => FormatKind::Double,
                _ => return None,
            },
            None | Some(JsonType::String) => string_format(name)?,
            Some(JsonType::Array | JsonType::Boolean | JsonType::Object) => return None,
        };
        Some(Self { name: name.into(), kind })
    }
}

fn string_format(name: &str) -> Option<FormatKind> {
    // Dashes do not count: `date-time` and `datetime` are one.
    Some(match name.replace('-', "").as_str() {
        "bsonobjectid" => FormatKind::BsonObjectId,
        "uri" => FormatKind::Uri,
        "email" => FormatKind::Email,
        "hostname" => FormatKind::Hostname,
        "ipv4" => FormatKind::Ipv4,
        "ipv6" => FormatKind::Ipv6,
        "cidr" => FormatKind::Cidr,
        "mac" => FormatKind::Mac,
        "uuid" => FormatKind::Uuid,
        "uuid3" => FormatKind::Uuid3,
        "uuid4" => FormatKind::Uuid4,
        "uuid5" => FormatKind::Uuid5,
        "isbn" => FormatKind::Isbn,
        "isbn10" => FormatKind::Isbn10,
        "isbn13" => FormatKind::Isbn13,
        "creditcard" => FormatKind::CreditCard,
        "ssn" => FormatKind::Ssn,
        "hexcolor" => FormatKind::HexColor,
        "rgbcolor" => FormatKind::RgbColor,
        "byte" => FormatKind::Byte,
        "password" => FormatKind::Password,
        "date" => FormatKind::Date,
        "duration" => FormatKind::Duration,
        "datetime" => FormatKind::DateTime,
        "quantity" => FormatKind::Quantity,
        "k8sshortname" => FormatKind::ShortName,
        "k8slongname" => FormatKind::LongName,
        _ => return None,
    })
}
