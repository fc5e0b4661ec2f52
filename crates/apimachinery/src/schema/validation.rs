//! Validation rules of a CRD's schema beyond the shape, including `allOf`, `anyOf`, `oneOf` and `not`.

use super::pattern::Pattern;
use crate::{Str, Value};

/// Limits on a value beyond its shape. Each limit applies only to values of its JSON type.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The schema declares no type: values of any JSON type are valid.
    pub untyped: bool,
    /// List items may have fields that the item's type does not declare (`x-kubernetes-preserve-unknown-fields` on an
    /// array; structs and maps have it in their shape).
    pub preserve: bool,
    /// No keys are allowed (`additionalProperties: false`).
    pub closed: bool,
    pub format: Option<Format>,
    /// The allowed values (`enum`); empty allows all.
    pub values: Box<[Value]>,
    pub number: NumberRules,
    pub string: StringRules,
    pub list: ListRules,
    pub object: ObjectRules,
    /// `allOf`, `anyOf`, `oneOf` and `not`.
    pub junctors: Option<Box<Junctors>>,
    /// CEL rules in source form; evaluated elsewhere.
    pub validations: Box<[Validation]>,
}

/// Limits on numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberRules {
    pub maximum: Option<f64>,
    /// Whether `maximum` itself is excluded.
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    /// Whether `minimum` itself is excluded.
    pub exclusive_minimum: bool,
    pub multiple_of: Option<f64>,
}

/// Limits on strings.
#[derive(Clone, Debug, Default)]
pub struct StringRules {
    /// `maxLength`, in characters.
    pub characters_max: Option<i64>,
    /// `minLength`, in characters.
    pub characters_min: Option<i64>,
    /// Must match a part of the string.
    pub pattern: Option<Pattern>,
}

/// Limits on lists.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListRules {
    pub items_max: Option<i64>,
    pub items_min: Option<i64>,
    pub unique: bool,
}

/// Limits on objects.
#[derive(Clone, Debug, Default)]
pub struct ObjectRules {
    pub keys_max: Option<i64>,
    pub keys_min: Option<i64>,
    /// The required keys, in the schema's order.
    pub required: Box<[Str]>,
}

/// The logical junctors of a schema.
#[derive(Clone, Debug, Default)]
pub struct Junctors {
    pub all_of: Box<[NestedValidation]>,
    pub any_of: Box<[NestedValidation]>,
    pub one_of: Box<[NestedValidation]>,
    pub not: Option<NestedValidation>,
}

/// A schema under a junctor. It restricts values whose shape is declared outside, so it has rules but no shape.
#[derive(Clone, Debug, Default)]
pub struct NestedValidation {
    /// The required JSON type; set only in the two branches of an int-or-string.
    pub json_type: Option<JsonType>,
    pub rules: Rules,
    /// Limits on fields, sorted by name.
    pub properties: Box<[(Str, NestedValidation)]>,
    /// Limits on list items.
    pub items: Option<Box<NestedValidation>>,
}

/// One rule of `x-kubernetes-validations`, in source form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// The CEL expression.
    pub rule: Str,
    /// The error message if the rule is violated.
    pub message: Str,
    /// A CEL expression that returns the error message.
    pub message_expression: Str,
    pub reason: Option<Str>,
    /// The field that the error refers to, relative to the value.
    pub field_path: Str,
    /// Whether the rule is also evaluated on create, with an empty `oldSelf`.
    pub optional_old_self: Option<bool>,
}

/// An OpenAPI format of strings or numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The name in the schema: `date-time`.
    pub name: Str,
    pub kind: FormatKind,
}

/// The formats that Kubernetes validates; others are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
pub enum JsonType {
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    String,
}

impl JsonType {
    /// All types, sorted by name.
    pub const ALL: [Self; 6] = [Self::Array, Self::Boolean, Self::Integer, Self::Number, Self::Object, Self::String];

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Returns the name in a schema.
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

    /// Returns the type of a value; [`None`] for `null`.
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
    /// Returns the format `name` for values of type `json_type`; [`None`] if Kubernetes does not validate it.
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
    // Dashes are ignored: `date-time` and `datetime` are the same format.
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
