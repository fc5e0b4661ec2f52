//! Texts as Go writes them: strings in JSON, quoted strings and values in messages.

use std::fmt::Write;
use std::sync::LazyLock;

use regex::Regex;

use crate::Value;
use crate::json::format_float;

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

/// Writes a JSON string; `html` asks for the escapes that make it safe inside a web page.
pub(super) fn write_json_string(out: &mut String, text: &str, html: bool) {
    out.push('"');
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

/// A string as `%q` prints it.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            _ if is_print(c) => out.push(c),
            '\0'..='\x7f' => put(&mut out, format_args!("\\x{:02x}", c as u32)),
            '\u{80}'..='\u{ffff}' => put(&mut out, format_args!("\\u{:04x}", c as u32)),
            _ => put(&mut out, format_args!("\\U{:08x}", c as u32)),
        }
    }
    out.push('"');
    out
}

/// Whether Go calls a character printable: a letter, mark, number, punctuation, symbol, or the ASCII space.
pub(super) fn is_print(c: char) -> bool {
    static PRINTABLE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}]$").expect("the pattern is valid"));
    match c {
        ' '..='~' => true,
        '\0'..='\x7f' => false,
        _ => PRINTABLE.is_match(c.encode_utf8(&mut [0; 4])),
    }
}

/// A value as `%v` prints what Go decodes from it: `map[a:1 b:[x y]]`.
pub(super) fn plain(value: &Value) -> String {
    let mut out = String::new();
    write_plain(&mut out, value);
    out
}

/// A value as `%#v` prints what Go decodes from it: `map[string]interface {}{"a":1}`.
pub(super) fn syntax(value: &Value) -> String {
    let mut out = String::new();
    write_syntax(&mut out, value);
    out
}

/// What `%T` calls a value that Go decoded from JSON.
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

/// A float as `%v` prints it, which turns to exponents sooner than JSON does.
pub(super) fn plain_float(float: f64) -> String {
    let size = float.abs();
    if size == 0.0 || (1e-4..1e21).contains(&size) {
        return float.to_string();
    }
    let digits = format!("{float:e}");
    let (mantissa, exponent) = digits.split_once('e').expect("a float printed with an exponent has one");
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{mantissa}e{sign}{exponent:0>2}")
}

fn write_plain(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(b) => put(out, format_args!("{b}")),
        Value::Int(i) => put(out, format_args!("{i}")),
        Value::Float(f) => out.push_str(&plain_float(*f)),
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
        Value::String(s) => out.push_str(&quote(s)),
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
                put(out, format_args!("{}:", quote(key)));
                write_syntax(out, value);
            }
            out.push('}');
        }
        scalar => write_plain(out, scalar),
    }
}

fn put(out: &mut String, args: std::fmt::Arguments<'_>) {
    out.write_fmt(args).expect("writing into a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn strings_are_quoted_as_go_quotes_them() {
        #[track_caller]
        fn check(text: &str, expect: &str) {
            assert_eq!(quote(text), expect);
        }
        check("kubectl", r#""kubectl""#);
        check("a\"b\\c\n\t\x07\x01\x7f", r#""a\"b\\c\n\t\a\x01\x7f""#);
        check("é 日本 e\u{301}", "\"é 日本 e\u{301}\"");
        check("\u{a0}\u{200b}\u{e000}\u{e0001}", r#""\u00a0\u200b\ue000\U000e0001""#);
    }

    #[test]
    fn json_is_safe_inside_a_web_page() {
        let mut out = String::new();
        write_json(&mut out, &value!({"a<b": ["&", "\u{2028}", "\u{8}", 1, (Value::Float(2.5)), null, true]}));
        assert_eq!(out, "{\"a\\u003cb\":[\"\\u0026\",\"\\u2028\",\"\\u0008\",1,2.5,null,true]}");
    }

    #[test]
    fn values_are_shown_as_go_shows_them() {
        let value = value!({"b": [1, "x", null], "a": {"c": true}});
        assert_eq!(plain(&value), "map[a:map[c:true] b:[1 x <nil>]]");
        assert_eq!(
            syntax(&value),
            r#"map[string]interface {}{"a":map[string]interface {}{"c":true}, "b":[]interface {}{1, "x", interface {}(nil)}}"#
        );
        assert_eq!(plain_float(0.00001), "1e-05");
        assert_eq!(plain_float(1.5e22), "1.5e+22");
        assert_eq!(plain_float(1e6), "1000000");
    }
}
