//! Reads parts of objects: what is absent reads as empty.

use machinery::{Object, Value};

/// The items of a list.
pub fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    object.at(path).and_then(Value::as_array).unwrap_or_default()
}

/// A text.
pub fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    object.str_at(path).unwrap_or_default()
}

/// Whether a switch is on.
pub fn is_true(object: &Value, path: &[&str]) -> bool {
    object.at(path).and_then(Value::as_bool).unwrap_or(false)
}

/// The entries of a map of texts.
pub fn texts<'a>(object: &'a Value, path: &[&str]) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
    let entries = object.at(path).and_then(Value::as_object).into_iter().flat_map(Object::iter);
    entries.filter_map(|(key, value)| Some((key, value.as_str()?)))
}
