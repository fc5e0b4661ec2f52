//! Field errors of validation, with upstream's messages.
//!
//! A rule is a function that takes a value, its [`Path`] and a list to which it adds errors, so that a client receives
//! all errors in one response.

use std::collections::BTreeSet;
use std::fmt;

use crate::{Path, Value, go};

pub type Errors = Vec<Error>;

/// An error in one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    pub reason: Reason,
    /// For example `spec.containers[0].image`.
    pub field: String,
    pub value: BadValue,
    /// States the requirement that the value violates.
    pub detail: String,
}

/// The type of a field error, named as in the causes of a `Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// An object that the value refers to does not exist.
    NotFound,
    Required,
    Duplicate,
    /// The value is malformed or out of bounds.
    Invalid,
    /// The value is not one of the supported ones.
    NotSupported,
    /// The value is not allowed in these circumstances.
    Forbidden,
    TooLong,
    TooMany,
    TooFew,
    /// A failure that the client did not cause.
    Internal,
    /// The value has a different type than the field.
    TypeInvalid,
    TooShort,
}

/// The rejected value as printed in the message.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum BadValue {
    /// Not printed.
    #[default]
    Omitted,
    /// Strings are printed quoted, numbers and booleans unquoted, the rest as JSON.
    Value(Value),
    /// Printed unchanged: for values whose Go form has a different order or different names than their JSON.
    Text(String),
}

impl Error {
    /// Reports a malformed or out-of-bounds value; `detail` states the requirement.
    pub fn invalid(path: &Path, value: impl Into<BadValue>, detail: impl Into<String>) -> Self {
        Self::new(Reason::Invalid, path, value.into(), detail)
    }

    pub fn type_invalid(path: &Path, value: impl Into<BadValue>, detail: impl Into<String>) -> Self {
        Self::new(Reason::TypeInvalid, path, value.into(), detail)
    }

    /// Reports a missing value; `detail` may be empty.
    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(Reason::Required, path, BadValue::Omitted, detail)
    }

    pub fn duplicate(path: &Path, value: impl Into<BadValue>) -> Self {
        Self::new(Reason::Duplicate, path, value.into(), "")
    }

    /// Reports a value that refers to an object that does not exist.
    pub fn not_found(path: &Path, value: impl Into<BadValue>) -> Self {
        Self::new(Reason::NotFound, path, value.into(), "")
    }

    /// Reports a value that is not one of `supported`, which are listed in the given order.
    pub fn not_supported(path: &Path, value: impl Into<BadValue>, supported: &[impl AsRef<str>]) -> Self {
        let known: Vec<_> = supported.iter().map(|one| go::quote(one.as_ref())).collect();
        let detail = if known.is_empty() { String::new() } else { format!("supported values: {}", known.join(", ")) };
        Self::new(Reason::NotSupported, path, value.into(), detail)
    }

    /// Reports a value that is not allowed in these circumstances.
    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(Reason::Forbidden, path, BadValue::Omitted, detail)
    }

    /// Reports a value of more than `bytes_max` bytes.
    pub fn too_long(path: &Path, bytes_max: usize) -> Self {
        let unit = if bytes_max == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {bytes_max} {unit}");
        Self::new(Reason::TooLong, path, BadValue::Omitted, detail)
    }

    /// Reports a value of more than `characters_max` characters.
    pub fn too_long_characters(path: &Path, characters_max: usize) -> Self {
        let unit = if characters_max == 1 { "character" } else { "characters" };
        let detail = format!("may not be more than {characters_max} {unit}");
        Self::new(Reason::TooLong, path, BadValue::Omitted, detail)
    }

    /// Reports a value of fewer than `characters_min` characters.
    pub fn too_short(path: &Path, characters_min: usize) -> Self {
        let unit = if characters_min == 1 { "character" } else { "characters" };
        let detail = format!("must be at least {characters_min} {unit}");
        Self::new(Reason::TooShort, path, BadValue::Omitted, detail)
    }

    /// Reports a list whose `items` items exceed `items_max`.
    pub fn too_many(path: &Path, items: usize, items_max: usize) -> Self {
        let unit = if items_max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {items_max} {unit}");
        Self::new(Reason::TooMany, path, count(items), detail)
    }

    /// Reports a list whose `items` items are fewer than `items_min`.
    pub fn too_few(path: &Path, items: usize, items_min: usize) -> Self {
        let unit = if items_min == 1 { "item" } else { "items" };
        let detail = format!("must have at least {items_min} {unit}");
        Self::new(Reason::TooFew, path, count(items), detail)
    }

    /// Reports a failure that the client did not cause.
    pub fn internal(path: &Path, cause: impl fmt::Display) -> Self {
        Self::new(Reason::Internal, path, BadValue::Omitted, cause.to_string())
    }

    /// Returns the message without the field, as in a cause of a `Status`.
    pub fn body(&self) -> impl fmt::Display + '_ {
        struct Body<'a>(&'a Error);
        impl fmt::Display for Body<'_> {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Error { reason, value, detail, .. } = self.0;
                out.write_str(reason.message_prefix())?;
                if reason.includes_value() && *value != BadValue::Omitted {
                    write!(out, ": {value}")?;
                }
                if detail.is_empty() { Ok(()) } else { write!(out, ": {detail}") }
            }
        }
        Body(self)
    }

    /// Returns this error as a cause of a `Status`.
    pub fn cause(&self) -> Cause {
        Cause { reason: self.reason.name().to_owned(), message: self.body().to_string(), field: self.field.clone() }
    }

    fn new(reason: Reason, path: &Path, value: BadValue, detail: impl Into<String>) -> Self {
        let mut field = path.to_string();
        if field.is_empty() {
            // Upstream prints this for a path without a name.
            field.push_str("<nil>");
        }
        Self { reason, field, value, detail: detail.into() }
    }
}

/// A cause in the details of a `Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// A machine-readable name: `FieldValueInvalid`.
    pub reason: String,
    pub message: String,
    /// Empty if the cause does not refer to a field.
    pub field: String,
}

/// Joins the distinct errors into one line: a single error unchanged, several as `[a, b]`. Returns `None` for an empty
/// list.
pub fn aggregate(errors: &[Error]) -> Option<String> {
    let mut seen = BTreeSet::new();
    let mut lines = Vec::with_capacity(errors.len());
    for error in errors {
        let line = error.to_string();
        if seen.insert(line.clone()) {
            lines.push(line);
        }
    }
    match lines.len() {
        0 | 1 => lines.pop(),
        _ => Some(format!("[{}]", lines.join(", "))),
    }
}

impl Reason {
    /// Returns the name used in causes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::TooShort => "FieldValueTooShort",
        }
    }

    /// Returns the first words of the message.
    pub const fn message_prefix(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::Internal => "Internal error",
            Self::TooShort => "Too short",
        }
    }

    const fn includes_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for Error {}

impl fmt::Display for BadValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Omitted => Ok(()),
            Self::Value(Value::String(text)) => out.write_str(&go::quote(text)),
            Self::Value(Value::Float(float)) => out.write_str(&go::float(*float)),
            Self::Value(value) => out.write_str(&go::json(value)),
            Self::Text(text) => out.write_str(text),
        }
    }
}

impl<T: Into<Value>> From<T> for BadValue {
    fn from(value: T) -> Self {
        Self::Value(value.into())
    }
}

impl From<&Value> for BadValue {
    fn from(value: &Value) -> Self {
        Self::Value(value.clone())
    }
}

fn count(items: usize) -> BadValue {
    BadValue::Value(Value::Int(i64::try_from(items).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    fn check(error: &Error, text: &str) {
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn messages_match_upstream() {
        let root = Path::ROOT;
        let at = root.field("a");
        check(&Error::invalid(&at, -1, "must be positive"), "a: Invalid value: -1: must be positive");
        check(&Error::invalid(&at, "x\"", ""), r#"a: Invalid value: "x\"""#);
        check(&Error::invalid(&at, Value::Null, "no"), "a: Invalid value: null: no");
        check(&Error::invalid(&at, Value::Float(0.5), "no"), "a: Invalid value: 0.5: no");
        check(&Error::invalid(&at, value!({"b": ["<"]}), "no"), r#"a: Invalid value: {"b":["\u003c"]}: no"#);
        check(&Error::invalid(&at, BadValue::Text("{B:1}".into()), "no"), "a: Invalid value: {B:1}: no");
        check(&Error::type_invalid(&at, true, "must be a string"), "a: Invalid value: true: must be a string");
        check(&Error::required(&at, ""), "a: Required value");
        check(&Error::required(&at, "name or generateName"), "a: Required value: name or generateName");
        check(&Error::duplicate(&at, "x"), r#"a: Duplicate value: "x""#);
        check(&Error::not_found(&at, "x"), r#"a: Not found: "x""#);
        check(&Error::not_supported(&at, "x", &["b", "a"]), r#"a: Unsupported value: "x": supported values: "b", "a""#);
        check(&Error::not_supported(&at, "x", &[""; 0]), r#"a: Unsupported value: "x""#);
        check(&Error::forbidden(&at, "not now"), "a: Forbidden: not now");
        check(&Error::too_long(&at, 63), "a: Too long: may not be more than 63 bytes");
        check(&Error::too_long(&at, 1), "a: Too long: may not be more than 1 byte");
        check(&Error::too_long_characters(&at, 3), "a: Too long: may not be more than 3 characters");
        check(&Error::too_short(&at, 1), "a: Too short: must be at least 1 character");
        check(&Error::too_many(&at, 9, 8), "a: Too many: 9: must have at most 8 items");
        check(&Error::too_few(&at, 0, 1), "a: Too few: 0: must have at least 1 item");
        check(&Error::internal(&at, "broken"), "a: Internal error: broken");
        check(&Error::required(&root, ""), "<nil>: Required value");
    }

    #[test]
    fn errors_are_aggregated_into_one_line_without_duplicates() {
        let at = Path::of("a");
        let (one, two) = (Error::required(&at, ""), Error::duplicate(&at, "x"));
        assert_eq!(aggregate(&[]), None);
        assert_eq!(aggregate(&[one.clone(), one.clone()]).unwrap(), "a: Required value");
        assert_eq!(aggregate(&[one.clone(), two, one]).unwrap(), r#"[a: Required value, a: Duplicate value: "x"]"#);
    }

    #[test]
    fn causes_have_reason_and_field_and_no_field_in_the_message() {
        let cause = Error::invalid(&Path::of("a"), 1, "no").cause();
        assert_eq!(
            cause,
            Cause { reason: "FieldValueInvalid".into(), message: "Invalid value: 1: no".into(), field: "a".into() }
        );
    }
}
