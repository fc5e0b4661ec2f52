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

/// Replaces characters that could control a terminal: escape and carriage return as kubectl does, and all other control
/// characters except tabs and line breaks.
// DEVIATION: kubectl escapes control characters only in tables and descriptions, and only escape and carriage return.
// Here all are escaped, also in other columns, in messages and in errors.
pub fn escape_terminal(text: &str) -> Cow<'_, str> {
    let controls = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\u{b}' | '\u{c}');
    if !text.contains(controls) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\u{1b}' => escaped.push_str("^["),
            '\r' => escaped.push_str("\\r"),
            c if controls(c) => escaped.extend(c.escape_unicode()),
            c => escaped.push(c),
        }
    }
    escaped.into()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_except_for_the_layout() {
        let check = |text: &str, expect: &str| assert_eq!(escape_terminal(text), expect, "{text:?}");
        check("a\tb\nc\u{c}", "a\tb\nc\u{c}");
        check("\u{1b}[31mred", "^[[31mred");
        check("shown\rhidden", "shown\\rhidden");
        // The control sequence introducer of eight bits, and a backspace.
        check("\u{9b}31m", "\\u{9b}31m");
        check("ab\u{8}c", "ab\\u{8}c");
    }
}
