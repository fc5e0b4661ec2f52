//! `-o kyaml`: YAML in flow style, with all strings quoted and keys quoted where they could be misread.

use apimachinery::{Value, go, json, yaml};

/// A line break inside a quoted string: the backslash hides it from the parser.
const FOLD: &str = "\\\n";

/// Prints an object as a YAML document.
pub fn print(object: &Value) -> String {
    let mut out = "---\n".to_owned();
    push_value(object, 0, &mut out);
    out.push('\n');
    out
}

fn push_value(value: &Value, level: usize, out: &mut String) {
    match value {
        Value::String(text) => push_string(text, level + 1, out),
        Value::Array(items) if items.is_empty() => out.push_str("[]"),
        Value::Array(items) if items.iter().all(|item| matches!(item, Value::Array(_) | Value::Object(_))) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                push_value(item, level, out);
            }
            out.push(']');
        }
        Value::Array(items) => {
            out.push_str("[\n");
            for item in items {
                push_indent(level + 1, out);
                push_value(item, level + 1, out);
                out.push_str(",\n");
            }
            push_indent(level, out);
            out.push(']');
        }
        Value::Object(object) if object.is_empty() => out.push_str("{}"),
        Value::Object(object) => {
            out.push_str("{\n");
            for (key, value) in object.iter() {
                push_indent(level + 1, out);
                push_key(key, out);
                out.push_str(": ");
                push_value(value, level + 1, out);
                out.push_str(",\n");
            }
            push_indent(level, out);
            out.push('}');
        }
        _ => out.push_str(&json::to_string(value)),
    }
}

fn push_key(key: &str, out: &mut String) {
    if !needs_quotes(key) {
        out.push_str(key);
        return;
    }
    out.push('"');
    for c in key.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            _ => push_escaped(c, out),
        }
    }
    out.push('"');
}

/// Writes a quoted string; one with line breaks starts on a new line and is folded after each break.
fn push_string(text: &str, level: usize, out: &mut String) {
    out.push('"');
    let multi = text.contains('\n');
    if multi {
        out.push_str(FOLD);
    }
    let mut starts_line = multi;
    for c in text.chars() {
        if starts_line {
            push_indent(level, out);
            // Leading white space is escaped, or the parser would drop it; other lines are aligned with it.
            out.push(if c.is_whitespace() && c != '\n' { '\\' } else { ' ' });
        }
        starts_line = c == '\n';
        match c {
            '\n' => {
                out.push_str("\\n");
                out.push_str(FOLD);
            }
            '\t' => out.push('\t'),
            _ => push_escaped(c, out),
        }
    }
    if multi {
        if !starts_line {
            out.push_str(FOLD);
        }
        push_indent(level, out);
    }
    out.push('"');
}

fn push_escaped(c: char, out: &mut String) {
    let escape = match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\r' => "\\r",
        '\u{b}' => "\\v",
        '\0' => "\\0",
        '\u{1b}' => "\\e",
        '\u{85}' => "\\N",
        '\u{a0}' => "\\_",
        '\u{2028}' => "\\L",
        '\u{2029}' => "\\P",
        _ if go::is_printable(c) => return out.push(c),
        _ => {
            let code = u32::from(c);
            return out.push_str(&match code {
                ..0x20 | 0x7f => format!("\\x{code:02x}"),
                ..0x1_0000 => format!("\\u{code:04x}"),
                _ => format!("\\U{code:08x}"),
            });
        }
    };
    out.push_str(escape);
}

fn push_indent(level: usize, out: &mut String) {
    out.extend(std::iter::repeat_n("  ", level));
}

/// Whether a key must be quoted: it could be read as another type, or has characters beyond names and paths.
fn needs_quotes(key: &str) -> bool {
    let last = key.chars().count().saturating_sub(1);
    let plain =
        |(at, c): (usize, char)| c.is_alphanumeric() || c == '_' || at > 0 && at < last && matches!(c, '-' | '.' | '/');
    key.is_empty() || is_ambiguous(key) || !key.chars().enumerate().all(plain)
}

fn is_ambiguous(key: &str) -> bool {
    let lower = key.to_lowercase();
    let word = matches!(
        lower.as_str(),
        "null" | "t" | "f" | "true" | "false" | "y" | "n" | "yes" | "no" | "on" | "off" | "inf" | "infinity" | "nan"
    );
    let number = lower.replace('_', "");
    let prefixed = ["0x", "0o", "0b"].iter().any(|prefix| number.starts_with(prefix));
    let number = number.parse::<f64>().is_ok() || prefixed && number.len() > 2;
    let date = key.len() > 5 && key.as_bytes()[4] == b'-' && key[..4].bytes().all(|byte| byte.is_ascii_digit());
    let parsed = yaml::parse(key).is_ok_and(|value| value.as_str() != Some(key));
    word || number || date && key[5..].starts_with(|c: char| c.is_ascii_digit()) || parsed
}

#[cfg(test)]
mod tests {
    use apimachinery::json;

    use super::*;

    #[test]
    fn objects_are_printed_like_kubectl() {
        let object = json::parse(include_bytes!("kyaml/object.json")).unwrap();
        assert_eq!(print(&object), include_str!("kyaml/object.yaml"));
    }
}
