//! Object field access with empty defaults for missing fields.

use apimachinery::{Object, Value};

/// Returns the list at a path, empty if missing.
pub(crate) fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    object.at(path).and_then(Value::as_array).unwrap_or_default()
}

/// Returns the string at a path, empty if missing.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    object.str_at(path).unwrap_or_default()
}

/// Returns the boolean at a path, `false` if missing.
pub(crate) fn is_true(object: &Value, path: &[&str]) -> bool {
    object.at(path).and_then(Value::as_bool).unwrap_or(false)
}

/// Returns the entries of the string map at a path.
pub(crate) fn texts<'a>(object: &'a Value, path: &[&str]) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
    let entries = object.at(path).and_then(Value::as_object).into_iter().flat_map(Object::iter);
    entries.filter_map(|(key, value)| Some((key, value.as_str()?)))
}
