//! A value with its field path, as used by the validation rules of a kind.
//!
//! ```
//! use apimachinery::{At, Errors, Value, json};
//! let object: Value = json::parse(br#"{"spec": {"replicas": -1}}"#).unwrap();
//! let mut errors = Errors::new();
//! let root = At::root(&object);
//! let spec = root.get("spec");
//! let replicas = spec.get("replicas");
//! if replicas.int() < 0 {
//!     errors.push(replicas.invalid("must be greater than or equal to 0"));
//! }
//! assert_eq!(errors[0].to_string(), "spec.replicas: Invalid value: -1: must be greater than or equal to 0");
//! ```

use crate::field::{BadValue, Error};
use crate::{Object, Path, Value};

/// A value that may be absent, and its field path.
///
/// An absent value reads as Go's zero value, as in upstream's validation rules: `int()` is 0, `str()` is empty.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    value: &'a Value,
    path: Path<'a>,
}

static ABSENT: Value = Value::Null;

impl<'a> At<'a> {
    /// Returns the root object; its path prints as an empty string.
    pub const fn root(value: &'a Value) -> Self {
        Self { value, path: Path::ROOT }
    }

    pub const fn new(value: &'a Value, path: Path<'a>) -> Self {
        Self { value, path }
    }

    pub fn get<'b>(&'b self, name: &'b str) -> At<'b>
    where
        'a: 'b,
    {
        At { value: self.value.get(name).unwrap_or(&ABSENT), path: self.path.field(name) }
    }

    /// Returns the entry `key` of a map; its path has the key in brackets.
    pub fn entry<'b>(&'b self, key: &'b str) -> At<'b>
    where
        'a: 'b,
    {
        At { value: self.value.get(key).unwrap_or(&ABSENT), path: self.path.key(key) }
    }

    /// Returns the items of a list in order; empty if this is not a list.
    pub fn items<'b>(&'b self) -> impl DoubleEndedIterator<Item = At<'b>> + ExactSizeIterator + 'b
    where
        'a: 'b,
    {
        self.list().iter().enumerate().map(|(index, value)| At { value, path: self.path.index(index) })
    }

    /// Returns the entries of a map by key; empty if this is not a map.
    pub fn entries<'b>(&'b self) -> impl Iterator<Item = (&'b str, At<'b>)> + 'b
    where
        'a: 'b,
    {
        let entries = self.value.as_object().into_iter().flat_map(Object::iter);
        entries.map(|(key, value)| (key, At { value, path: self.path.key(key) }))
    }

    /// Returns the value, `Null` if absent.
    pub const fn value(&self) -> &'a Value {
        self.value
    }

    pub const fn path(&self) -> &Path<'a> {
        &self.path
    }

    pub const fn is_present(&self) -> bool {
        !self.value.is_null()
    }

    pub const fn is_absent(&self) -> bool {
        self.value.is_null()
    }

    /// Returns the string; empty if absent or not a string.
    pub fn str(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    /// Returns the integer; 0 if absent or not an integer.
    pub fn int(&self) -> i64 {
        self.value.as_int().unwrap_or_default()
    }

    /// Returns the boolean; false if absent or not a boolean.
    pub fn bool(&self) -> bool {
        self.value.as_bool().unwrap_or_default()
    }

    /// Returns the list; empty if absent or not a list.
    pub fn list(&self) -> &'a [Value] {
        self.value.as_array().unwrap_or_default()
    }

    /// Returns the number of items or entries, or of bytes in a string.
    pub fn len(&self) -> usize {
        match self.value {
            Value::Array(items) => items.len(),
            Value::Object(entries) => entries.len(),
            Value::String(text) => text.len(),
            _ => 0,
        }
    }

    /// Whether the value is absent, or an empty string, list or map.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an error: the value is malformed or out of bounds.
    pub fn invalid(&self, detail: impl Into<String>) -> Error {
        Error::invalid(&self.path, self.bad_value(), detail)
    }

    /// Returns an error: the value is required.
    pub fn required(&self, detail: impl Into<String>) -> Error {
        Error::required(&self.path, detail)
    }

    /// Returns an error: the value is not allowed in these circumstances.
    pub fn forbidden(&self, detail: impl Into<String>) -> Error {
        Error::forbidden(&self.path, detail)
    }

    /// Returns an error: the value is not unique.
    pub fn duplicate(&self) -> Error {
        Error::duplicate(&self.path, self.bad_value())
    }

    /// Returns an error: the object that the value refers to does not exist.
    pub fn not_found(&self) -> Error {
        Error::not_found(&self.path, self.bad_value())
    }

    /// Returns an error: the value is not one of `supported`.
    pub fn not_supported(&self, supported: &[impl AsRef<str>]) -> Error {
        Error::not_supported(&self.path, self.bad_value(), supported)
    }

    fn bad_value(&self) -> BadValue {
        BadValue::from(self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn absent_values_read_as_zero_and_have_a_path() {
        let object = json::parse(br#"{"spec": {"ports": [{"port": 80}, {}]}}"#).unwrap();
        let root = At::root(&object);
        let spec = root.get("spec");
        let ports = spec.get("ports");
        let second = ports.items().nth(1).unwrap();
        let port = second.get("port");
        assert_eq!((port.int(), port.is_absent()), (0, true));
        assert_eq!(port.path().to_string(), "spec.ports[1].port");
        let metadata = root.get("metadata");
        let labels = metadata.get("labels");
        assert_eq!(labels.entry("a/b").path().to_string(), "metadata.labels[a/b]");
        assert_eq!(labels.entries().count(), 0);
    }
}
