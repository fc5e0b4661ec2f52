//! What is wrong with a field of an object, worded as Kubernetes words it.
//!
//! A rule is a function that takes a value, its [`Path`] and a list to add its findings to, so that a client learns
//! of everything that is wrong at once.

use std::collections::BTreeSet;
use std::fmt;

use crate::{Path, Value, go};

/// Everything found wrong with an object.
pub type Errors = Vec<Error>;

/// One thing wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// What sort of wrong.
    pub reason: Reason,
    /// Where: `spec.containers[0].image`.
    pub field: String,
    /// What stood there.
    pub value: BadValue,
    /// What should have stood there.
    pub detail: String,
}

/// What sort of wrong, by the names that the causes of a `Status` carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Something that the value refers to does not exist.
    NotFound,
    /// There must be a value.
    Required,
    /// The value must be unique and is not.
    Duplicate,
    /// The value is malformed or out of bounds.
    Invalid,
    /// The value is none of the known ones.
    NotSupported,
    /// The value would be right in other circumstances.
    Forbidden,
    /// The value is too long.
    TooLong,
    /// The list has too many items.
    TooMany,
    /// The list has too few items.
    TooFew,
    /// Not the client's fault.
    Internal,
    /// The value is not of the field's type.
    TypeInvalid,
    /// The value is too short.
    TooShort,
}

/// The value that was found wrong, as far as the message shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum BadValue {
    /// Not shown.
    #[default]
    Omitted,
    /// Strings are shown quoted, numbers and booleans plainly, the rest as JSON.
    Value(Value),
    /// Shown as it is: for values whose Go form has another order or other names than their JSON.
    Text(String),
}

impl Error {
    /// The value is malformed or out of bounds: `detail` says what it must be.
    pub fn invalid(path: &Path, value: impl Into<BadValue>, detail: impl Into<String>) -> Self {
        Self::new(Reason::Invalid, path, value.into(), detail)
    }

    /// The value is not of the field's type.
    pub fn type_invalid(path: &Path, value: impl Into<BadValue>, detail: impl Into<String>) -> Self {
        Self::new(Reason::TypeInvalid, path, value.into(), detail)
    }

    /// There must be a value. `detail` may be empty.
    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(Reason::Required, path, BadValue::Omitted, detail)
    }

    /// The value must be unique and is not.
    pub fn duplicate(path: &Path, value: impl Into<BadValue>) -> Self {
        Self::new(Reason::Duplicate, path, value.into(), "")
    }

    /// What the value refers to does not exist.
    pub fn not_found(path: &Path, value: impl Into<BadValue>) -> Self {
        Self::new(Reason::NotFound, path, value.into(), "")
    }

    /// The value is none of `supported`, which are listed in the order given.
    pub fn not_supported(path: &Path, value: impl Into<BadValue>, supported: &[impl AsRef<str>]) -> Self {
        let known: Vec<_> = supported.iter().map(|one| go::quote(one.as_ref())).collect();
        let detail = if known.is_empty() { String::new() } else { format!("supported values: {}", known.join(", ")) };
        Self::new(Reason::NotSupported, path, value.into(), detail)
    }

    /// The value would be right in other circumstances.
    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(Reason::Forbidden, path, BadValue::Omitted, detail)
    }

    /// The value has more than `bytes_max` bytes.
    pub fn too_long(path: &Path, bytes_max: usize) -> Self {
        let unit = if bytes_max == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {bytes_max} {unit}");
        Self::new(Reason::TooLong, path, BadValue::Omitted, detail)
    }

    /// The value has more than `characters_max` characters.
    pub fn too_long_characters(path: &Path, characters_max: usize) -> Self {
        let unit = if characters_max == 1 { "character" } else { "characters" };
        let detail = format!("may not be more than {characters_max} {unit}");
        Self::new(Reason::TooLong, path, BadValue::Omitted, detail)
    }

    /// The value has fewer than `characters_min` characters.
    pub fn too_short(path: &Path, characters_min: usize) -> Self {
        let unit = if characters_min == 1 { "character" } else { "characters" };
        let detail = format!("must be at least {characters_min} {unit}");
        Self::new(Reason::TooShort, path, BadValue::Omitted, detail)
    }

    /// The list has `items` items, which is more than `items_max`.
    pub fn too_many(path: &Path, items: usize, items_max: usize) -> Self {
        let unit = if items_max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {items_max} {unit}");
        Self::new(Reason::TooMany, path, count(items), detail)
    }

    /// The list has `items` items, which is fewer than `items_min`.
    pub fn too_few(path: &Path, items: usize, items_min: usize) -> Self {
        let unit = if items_min == 1 { "item" } else { "items" };
        let detail = format!("must have at least {items_min} {unit}");
        Self::new(Reason::TooFew, path, count(items), detail)
    }

    /// Something failed that is not the client's fault.
    pub fn internal(path: &Path, cause: impl fmt::Display) -> Self {
        Self::new(Reason::Internal, path, BadValue::Omitted, cause.to_string())
    }

    /// The message without the field: the message of a cause in a `Status`.
    pub fn body(&self) -> impl fmt::Display + '_ {
        struct Body<'a>(&'a Error);
        impl fmt::Display for Body<'_> {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Error { reason, value, detail, .. } = self.0;
                out.write_str(reason.words())?;
                if reason.shows_value() && *value != BadValue::Omitted {
                    write!(out, ": {value}")?;
                }
                if detail.is_empty() { Ok(()) } else { write!(out, ": {detail}") }
            }
        }
        Body(self)
    }

    /// This error as a cause of a `Status`.
    pub fn cause(&self) -> Cause {
        Cause { reason: self.reason.name().to_owned(), message: self.body().to_string(), field: self.field.clone() }
    }

    fn new(reason: Reason, path: &Path, value: BadValue, detail: impl Into<String>) -> Self {
        let mut field = path.to_string();
        if field.is_empty() {
            // What upstream prints for a path that it has no name for.
            field.push_str("<nil>");
        }
        Self { reason, field, value, detail: detail.into() }
    }
}

/// One reason of several in the details of a `Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// A name for machines: `FieldValueInvalid`.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// The field it is about, if it is about one.
    pub field: String,
}

/// All findings in one line, each once: alone as it is, several as `[a, b]`. `None` if there is none.
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
    /// The name that causes carry.
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

    /// How a message begins.
    pub const fn words(self) -> &'static str {
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

    const fn shows_value(self) -> bool {
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
    fn messages_read_as_kubernetes_prints_them() {
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
    fn several_findings_become_one_line_without_repetition() {
        let at = Path::of("a");
        let (one, two) = (Error::required(&at, ""), Error::duplicate(&at, "x"));
        assert_eq!(aggregate(&[]), None);
        assert_eq!(aggregate(&[one.clone(), one.clone()]).unwrap(), "a: Required value");
        assert_eq!(aggregate(&[one.clone(), two, one]).unwrap(), r#"[a: Required value, a: Duplicate value: "x"]"#);
    }

    #[test]
    fn a_cause_names_reason_and_field_and_does_not_repeat_the_field() {
        let cause = Error::invalid(&Path::of("a"), 1, "no").cause();
        assert_eq!(
            cause,
            Cause { reason: "FieldValueInvalid".into(), message: "Invalid value: 1: no".into(), field: "a".into() }
        );
    }
}
