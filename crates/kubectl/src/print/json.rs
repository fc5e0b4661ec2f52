//! `-o json`.

use apimachinery::{Value, go};

/// Prints an object with its keys sorted and four spaces of indentation.
pub fn print(object: &Value) -> String {
    let mut out = indent(&go::json(object));
    out.push('\n');
    out
}

/// Prints an object whose keys have the order of a type's fields. Other keys come last.
pub fn print_ordered(object: &Value, order: &[&str]) -> String {
    let mut text = String::new();
    write_ordered(object, order, &mut text);
    let mut text = indent(&text);
    text.push('\n');
    text
}

fn write_ordered(value: &Value, order: &[&str], out: &mut String) {
    match value {
        Value::Object(object) => {
            let mut entries: Vec<_> = object.iter().collect();
            entries.sort_by_key(|(key, _)| order.iter().position(|known| known == key).unwrap_or(order.len()));
            out.push('{');
            for (at, (key, value)) in entries.into_iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                out.push_str(&go::json(&Value::from(key)));
                out.push(':');
                write_ordered(value, order, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write_ordered(item, order, out);
            }
            out.push(']');
        }
        _ => out.push_str(&go::json(value)),
    }
}

/// Indents JSON by four spaces, like Go's `MarshalIndent`.
pub fn indent(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth = 0;
    let mut in_string = false;
    let mut chars = json.chars().peekable();
    while let Some(c) = chars.next() {
        if in_string {
            out.push(c);
            if c == '\\' {
                out.extend(chars.next());
            }
            in_string = c != '"';
            continue;
        }
        match c {
            '"' => in_string = true,
            '{' | '[' => {
                out.push(c);
                match chars.next_if(|next| matches!(next, '}' | ']')) {
                    Some(close) => out.push(close),
                    None => {
                        depth += 1;
                        break_line(depth, &mut out);
                    }
                }
                continue;
            }
            '}' | ']' => {
                depth -= 1;
                break_line(depth, &mut out);
            }
            _ => {}
        }
        out.push(c);
        match c {
            ',' => break_line(depth, &mut out),
            ':' => out.push(' '),
            _ => {}
        }
    }
    out
}

fn break_line(depth: usize, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n("    ", depth));
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn json_is_indented_by_four_spaces_and_escaped_for_html() {
        let object = value!({"b": [], "a": {"x": "<\"}\\", "n": 1.5, "l": [1, {"k": null}]}, "c": {}});
        let expect = r#"{
    "a": {
        "l": [
            1,
            {
                "k": null
            }
        ],
        "n": 1.5,
        "x": "\u003c\"}\\"
    },
    "b": [],
    "c": {}
}
"#;
        assert_eq!(print(&object), expect);
    }
}
