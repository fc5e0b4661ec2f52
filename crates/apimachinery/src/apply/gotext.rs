//! Go's text forms: JSON strings, quoted strings, and values in messages.

use std::fmt::Write;

use crate::json::format_float;
use crate::{Value, go};

/// Writes JSON as Go's encoder does by default: `<`, `>`, `&` and the two Unicode line separators are escaped.
pub(super) fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(i) => put(out, format_args!("{i}")),
        Value::Float(f) => put(out, format_args!("{}", format_float(*f))),
        Value::String(s) => write_json_string(out, s, true),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_json(out, item);
            }
            out.push(']');
        }
        Value::Object(object) => {
            out.push('{');
            for (at, (key, value)) in object.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_json_string(out, key, true);
                out.push(':');
                write_json(out, value);
            }
            out.push('}');
        }
    }
}

/// Writes a JSON string; `html` enables Go's HTML escapes.
pub(super) fn write_json_string(out: &mut String, text: &str, html: bool) {
    out.push('"');
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&')) {
        out.push_str(text);
        out.push('"');
        return;
    }
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\x1f' => put(out, format_args!("\\u{:04x}", c as u32)),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if html => put(out, format_args!("\\u{:04x}", c as u32)),
            _ => out.push(c),
        }
    }
    out.push('"');
}

/// Reports whether Go's `strconv.IsPrint` accepts a character: letters, marks, numbers, punctuation, symbols and the
/// ASCII space.
pub(super) fn is_print(c: char) -> bool {
    matches!(c, '"' | '\\') || go::quote(c.encode_utf8(&mut [0; 4]))[1..].starts_with(c)
}

/// Formats a value like Go's `%v` of the decoded JSON: `map[a:1 b:[x y]]`.
pub(super) fn plain(value: &Value) -> String {
    let mut out = String::new();
    write_plain(&mut out, value);
    out
}

/// Formats a value like Go's `%#v` of the decoded JSON: `map[string]interface {}{"a":1}`.
pub(super) fn syntax(value: &Value) -> String {
    let mut out = String::new();
    write_syntax(&mut out, value);
    out
}

/// Returns the type that Go's `%T` prints for the decoded JSON.
pub(super) const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

fn write_plain(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(b) => put(out, format_args!("{b}")),
        Value::Int(i) => put(out, format_args!("{i}")),
        Value::Float(f) => out.push_str(&go::float(*f)),
        Value::String(s) => out.push_str(s),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                write_plain(out, item);
            }
            out.push(']');
        }
        Value::Object(object) => {
            out.push_str("map[");
            for (at, (key, value)) in object.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                put(out, format_args!("{key}:"));
                write_plain(out, value);
            }
            out.push(']');
        }
    }
}

fn write_syntax(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::String(s) => out.push_str(&go::quote(s)),
        Value::Array(items) => {
            out.push_str("[]interface {}{");
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write_syntax(out, item);
            }
            out.push('}');
        }
        Value::Object(object) => {
            out.push_str("map[string]interface {}{");
            for (at, (key, value)) in object.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                put(out, format_args!("{}:", go::quote(key)));
                write_syntax(out, value);
            }
            out.push('}');
        }
        scalar => write_plain(out, scalar),
    }
}

fn put(out: &mut String, args: std::fmt::Arguments<'_>) {
    out.write_fmt(args).expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn is_print_agrees_with_go() {
        assert!("a \"\\é日e\u{301}".chars().all(is_print));
        assert!(!"\0\n\x7f\u{a0}\u{200b}\u{e000}".chars().any(is_print));
    }

    #[test]
    fn json_strings_are_html_escaped() {
        let mut out = String::new();
        write_json(&mut out, &value!({"a<b": ["&", "\u{2028}", "\u{8}", 1, (Value::Float(2.5)), null, true]}));
        assert_eq!(out, "{\"a\\u003cb\":[\"\\u0026\",\"\\u2028\",\"\\u0008\",1,2.5,null,true]}");
    }

    #[test]
    fn values_are_formatted_like_go() {
        let value = value!({"b": [1, "x", null], "a": {"c": true}});
        assert_eq!(plain(&value), "map[a:map[c:true] b:[1 x <nil>]]");
        assert_eq!(
            syntax(&value),
            r#"map[string]interface {}{"a":map[string]interface {}{"c":true}, "b":[]interface {}{1, "x", interface {}(nil)}}"#
        );
    }
}
