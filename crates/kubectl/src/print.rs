//! Printers: pure functions from objects to text, in kubectl's output formats.

pub mod custom_columns;
pub mod format;
pub mod go_template;
pub mod json;
pub mod jsonpath;
pub mod kyaml;
pub mod name;
pub mod sort;
pub mod table;
pub mod tabwriter;
pub mod yaml;

pub use format::{Format, Formats, Printer};

use std::borrow::Cow;

use apimachinery::Value;

/// Replaces characters that could control a terminal.
pub fn escape_terminal(text: &str) -> Cow<'_, str> {
    if text.contains(['\u{1b}', '\r']) { text.replace('\u{1b}', "^[").replace('\r', "\\r").into() } else { text.into() }
}

/// Removes `metadata.managedFields` from an object or from the items of a list.
pub fn omit_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(metadata) = item.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
}

/// Returns the items of a list, or the object itself.
pub fn items(object: &Value) -> &[Value] {
    match object.get("items").and_then(Value::as_array) {
        Some(items) => items,
        None => std::slice::from_ref(object),
    }
}
