//! YAML writer with kubectl's output format.
//!
//! Layout, quoting, folding and key order match Go's library, since users compare the output with saved files.

mod order;
mod scalar;

use crate::{Object, Value, go};

use scalar::{ScalarRole, Style};

/// The column after which lines are folded at a space.
const WIDTH: usize = 80;
/// One level of indentation.
const STEP: usize = 2;
/// A longer key is written with a question mark.
const SIMPLE_KEY_MAX: usize = 128;

/// Serializes a document.
pub fn to_string(value: &Value) -> String {
    let mut out = Writer { out: String::with_capacity(256), column: 0 };
    out.root(value);
    out.out
}

struct Writer {
    out: String,
    column: usize,
}

impl Writer {
    fn root(&mut self, value: &Value) {
        match value {
            Value::Object(object) if !object.is_empty() => self.mapping(object, 0),
            Value::Array(items) if !items.is_empty() => self.sequence(items, 0),
            _ => {
                self.leaf(value, STEP, ScalarRole::Value);
                self.line_end();
            }
        }
    }

    /// Writes entries; the first one continues the current line.
    fn mapping(&mut self, object: &Object, indent: usize) {
        for (at, (key, value)) in order::natural(object).into_iter().enumerate() {
            if at > 0 {
                self.pad(indent);
            }
            let simple = key.len() <= SIMPLE_KEY_MAX && !key.contains('\n');
            if simple {
                self.text(key, indent + STEP, ScalarRole::Key);
                self.push(":");
            } else {
                self.push("? ");
                self.text(key, indent + STEP, ScalarRole::Value);
                self.line_end();
                self.pad(indent);
                self.push(":");
            }
            match value {
                Value::Object(inner) if !inner.is_empty() && simple => {
                    self.line_end();
                    self.pad(indent + STEP);
                    self.mapping(inner, indent + STEP);
                }
                Value::Array(items) if !items.is_empty() && simple => {
                    self.line_end();
                    self.pad(indent);
                    self.sequence(items, indent);
                }
                _ => {
                    self.push(" ");
                    self.item(value, indent + STEP);
                }
            }
        }
    }

    /// Writes items; the first one continues the current line.
    fn sequence(&mut self, items: &[Value], indent: usize) {
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.pad(indent);
            }
            self.push("- ");
            self.item(item, indent + STEP);
        }
    }

    /// Writes a value that starts within a line, and ends the line.
    fn item(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Object(object) if !object.is_empty() => self.mapping(object, indent),
            Value::Array(items) if !items.is_empty() => self.sequence(items, indent),
            _ => {
                self.leaf(value, indent, ScalarRole::Value);
                self.line_end();
            }
        }
    }

    fn leaf(&mut self, value: &Value, indent: usize, position: ScalarRole) {
        match value {
            Value::Null => self.push("null"),
            Value::Bool(it) => self.push(if *it { "true" } else { "false" }),
            Value::Int(it) => self.push(&it.to_string()),
            Value::Float(it) => self.push(&go::shortest_float(&format!("{it:e}"))),
            Value::String(text) => self.text(text, indent, position),
            Value::Array(_) => self.push("[]"),
            Value::Object(_) => self.push("{}"),
        }
    }

    fn text(&mut self, text: &str, indent: usize, position: ScalarRole) {
        match scalar::style(text, position) {
            Style::Plain => self.plain(text, indent, position),
            Style::Single => {
                self.push("'");
                self.folded(text, indent, position, Style::Single);
                self.push("'");
            }
            Style::Double => {
                self.push("\"");
                self.folded(text, indent, position, Style::Double);
                self.push("\"");
            }
            Style::Literal => self.literal(text, indent),
        }
    }

    fn plain(&mut self, text: &str, indent: usize, position: ScalarRole) {
        if position == ScalarRole::Key || self.column + text.len() <= WIDTH {
            self.push(text);
        } else {
            self.folded(text, indent, position, Style::Plain);
        }
    }

    /// Writes text on one line, or on several lines broken at single spaces.
    fn folded(&mut self, text: &str, indent: usize, position: ScalarRole, style: Style) {
        let quoted = style != Style::Plain;
        let mut after_space = false;
        for (at, it) in text.char_indices() {
            if it != ' ' {
                scalar::put(&mut self.out, &mut self.column, it, style);
                after_space = false;
                continue;
            }
            let edge = quoted && (at == 0 || at + 1 == text.len());
            let space_follows = text[at + 1..].starts_with(' ');
            let may_break = position == ScalarRole::Value && !after_space && self.column > WIDTH && !edge;
            if may_break && (style == Style::Double || !space_follows) {
                self.line_end();
                self.pad(indent);
                // A space at the start of a line would be lost.
                if space_follows {
                    self.push("\\");
                }
            } else {
                self.push(" ");
            }
            after_space = true;
        }
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.push("|");
        if text.starts_with([' ', '\n']) {
            self.push("2");
        }
        let body = text.trim_end_matches('\n');
        match text.len() - body.len() {
            0 => self.push("-"),
            1 if !body.is_empty() => {}
            _ => self.push("+"),
        }
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            self.line_end();
            if !line.is_empty() {
                self.pad(indent);
                self.push(line);
            }
        }
    }

    fn push(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn pad(&mut self, indent: usize) {
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.column = indent;
    }

    fn line_end(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }
}
