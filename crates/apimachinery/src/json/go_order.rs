//! JSON serializer with the field order of Go's types, as in upstream's JSON serializer.
//!
//! Struct fields are written in Go's declaration order, maps and untyped objects sorted by key. The tree itself is
//! sorted, so the order comes from the schema: [`Struct::order`].

use super::write::{self, go_string};
use crate::apply::Element;
use crate::schema::{Schema, Shape, Struct};
use crate::{Object, Value};

/// Finds the schema of a built-in kind by `apiVersion` and `kind`.
pub type Kinds = fn(&str, &str) -> Option<Schema<'static>>;

/// Serializes objects like upstream's JSON serializer.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    kinds: Kinds,
}

impl Encoder {
    /// Creates an encoder that finds the types of objects with `kinds`.
    pub const fn new(kinds: Kinds) -> Self {
        Self { kinds }
    }

    /// Appends an object on one line in the field order of its kind. A kind that is not built in is sorted by key, as
    /// upstream writes custom resources.
    pub fn write(self, object: &Value, out: &mut Vec<u8>) {
        self.write_without(object, &[], out);
    }

    /// Appends an object without the `hidden` fields of its metadata.
    pub fn write_without(self, object: &Value, hidden: &[&str], out: &mut Vec<u8>) {
        let Value::Object(fields) = object else { return self.untyped(object, out) };
        let schema = self.schema_of(fields);
        let mut entries = Entries::open(out);
        let mut write = |key: &str, value: &Value, schema: Option<Schema<'_>>| {
            let out = entries.key(key);
            match value {
                Value::Object(metadata) if key == "metadata" && !hidden.is_empty() => {
                    let mut entries = Entries::open(out);
                    visit(metadata, schema, |key, value, schema| {
                        if !hidden.contains(&key) {
                            self.any(value, schema, entries.key(key));
                        }
                    });
                    entries.close();
                }
                _ => self.any(value, schema, out),
            }
        };
        visit(fields, schema, &mut write);
        entries.close();
    }

    /// Appends a value of a type on one line.
    pub fn write_as(self, value: &Value, schema: Schema<'_>, out: &mut Vec<u8>) {
        self.typed(value, schema, out);
    }

    fn schema_of(self, object: &Object) -> Option<Schema<'static>> {
        let text = |key| object.get(key).and_then(Value::as_str).unwrap_or_default();
        (self.kinds)(text("apiVersion"), text("kind"))
    }

    fn any(self, value: &Value, schema: Option<Schema<'_>>, out: &mut Vec<u8>) {
        match schema {
            Some(schema) => self.typed(value, schema, out),
            None => self.untyped(value, out),
        }
    }

    fn typed(self, value: &Value, schema: Schema<'_>, out: &mut Vec<u8>) {
        match (schema.shape(), value) {
            (_, Value::String(text)) => go_string(text, out),
            (Shape::Struct(_) | Shape::Map(_), Value::Object(object)) => {
                let mut entries = Entries::open(out);
                visit(object, Some(schema), |key, value, schema| self.any(value, schema, entries.key(key)));
                entries.close();
            }
            (Shape::List(list), Value::Array(items)) => {
                let item = schema.other(list.item);
                write_items(items, out, |value, out| self.typed(value, item, out));
            }
            (Shape::Either(either), value) => {
                let id = if matches!(value, Value::Object(_)) { either.object } else { either.other };
                self.typed(value, schema.other(id), out);
            }
            // DEVIATION: the content of a RawExtension is written in the field order of its kind, or sorted; upstream
            // keeps the order in which the client sent it.
            (Shape::RawExtension, value) => self.write(value, out),
            (Shape::FieldsV1, Value::Object(object)) => field_set(object, out),
            _ => self.untyped(value, out),
        }
    }

    fn untyped(self, value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::String(text) => go_string(text, out),
            Value::Array(items) => write_items(items, out, |value, out| self.untyped(value, out)),
            Value::Object(object) => {
                let mut entries = Entries::open(out);
                object.iter().for_each(|(key, value)| self.untyped(value, entries.key(key)));
                entries.close();
            }
            scalar => write::value(scalar, out),
        }
    }
}

fn write_items(items: &[Value], out: &mut Vec<u8>, mut write: impl FnMut(&Value, &mut Vec<u8>)) {
    out.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
}

/// An object under construction.
struct Entries<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl<'o> Entries<'o> {
    fn open(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    /// Starts an entry and returns the buffer for its value.
    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        go_string(key, self.out);
        self.out.push(b':');
        self.out
    }

    fn close(self) {
        self.out.push(b'}');
    }
}

/// Visits the entries of an object with their types, in Go's order.
fn visit<'v, 's>(
    object: &'v Object,
    schema: Option<Schema<'s>>,
    mut each: impl FnMut(&'v str, &'v Value, Option<Schema<'s>>),
) {
    match schema.map(|schema| (schema, schema.shape())) {
        Some((schema, Shape::Struct(shape))) if object.len() <= shape.order.len() => {
            visit_fields(object, shape, |key, value, field| {
                each(key, value, field.map(|field| schema.other(shape.fields[field].ty)));
            });
        }
        Some((schema, Shape::Map(map))) => {
            let schema = schema.other(map.value);
            object.iter().for_each(|(key, value)| each(key, value, Some(schema)));
        }
        _ => object.iter().for_each(|(key, value)| each(key, value, None)),
    }
}

/// Visits the entries of an object in the order of a struct's fields, each with the index of its field. Entries without
/// a field come last.
fn visit_fields<'v>(object: &'v Object, shape: &Struct, mut each: impl FnMut(&'v str, &'v Value, Option<usize>)) {
    /// Maximum number of fields of a Go type in the API.
    const FIELDS_MAX: usize = 64;
    const UNKNOWN: u16 = u16::MAX;
    let entries = object.entries();
    // Each number packs the position in Go's order, the field and the entry, so that it sorts by position.
    let mut places = [0_u64; FIELDS_MAX];
    let Some(places) = places.get_mut(..entries.len()) else {
        return object.iter().for_each(|(key, value)| each(key, value, shape.find(0, key)));
    };
    let mut next = 0;
    for (at, (key, _)) in entries.iter().enumerate() {
        let (position, field) = match shape.find(next, key) {
            Some(field) => {
                next = field + 1;
                (shape.order[field], field as u64)
            }
            None => (UNKNOWN, 0),
        };
        let packed = u64::from(position) << 32 | field << 16 | at as u64;
        // Insertion sort: the fastest for few entries that are mostly in order.
        let mut to = at;
        while to > 0 && places[to - 1] > packed {
            places[to] = places[to - 1];
            to -= 1;
        }
        places[to] = packed;
    }
    for packed in places {
        let (key, value) = &entries[(*packed & 0xffff) as usize];
        let field = (*packed >> 32 != u64::from(UNKNOWN)).then_some((*packed >> 16 & 0xffff) as usize);
        each(key, value, field);
    }
}

/// Writes a field set in the order of its path elements, which differs from the order of their text: `80` precedes
/// `443`.
fn field_set(object: &Object, out: &mut Vec<u8>) {
    let mut entries = Entries::open(out);
    let mut write = |key: &str, below: &Value| {
        let out = entries.key(key);
        match below {
            Value::Object(below) => field_set(below, out),
            other => write::value(other, out),
        }
    };
    match by_element(object) {
        Some(sorted) => sorted.into_iter().for_each(|(_, key, below)| write(key, below)),
        None => object.iter().for_each(|(key, below)| write(key, below)),
    }
    entries.close();
}

/// Returns the entries of a field set sorted by path element, `.` first; [`None`] if the text order is the same.
fn by_element(object: &Object) -> Option<Vec<(Option<Element>, &str, &Value)>> {
    if object.keys().all(sorts_as_text) {
        return None;
    }
    let element = |key: &str| if key == "." { Ok(None) } else { Element::parse(key) };
    let entries = object.iter().map(|(key, below)| Some((element(key).ok()?, key, below)));
    let mut entries: Vec<_> = entries.collect::<Option<_>>()?;
    entries.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    Some(entries)
}

/// Whether the text of a path element sorts like the element: a field, or strings without escapes and without
/// characters that sort before the closing quote.
fn sorts_as_text(key: &str) -> bool {
    match key.as_bytes() {
        [b'f', ..] | [b'.'] => true,
        [b'k', b':', rest @ ..] => {
            let number = |pair: &[u8]| matches!(pair, [b':', b'0'..=b'9' | b'-']);
            !rest.iter().any(|byte| matches!(byte, b'\\' | ..b'"')) && !rest.windows(2).any(number)
        }
        [b'v', b':', b'"', rest @ ..] => !rest.iter().any(|byte| matches!(byte, b'\\' | ..b'"')),
        _ => false,
    }
}

/// Indents JSON by two spaces like Go's `MarshalIndent`.
pub fn indent(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let (mut depth, mut rest) = (0_usize, json);
    while let [byte, after @ ..] = rest {
        rest = after;
        match byte {
            b'"' => {
                let end = string_end(rest);
                out.push(b'"');
                out.extend_from_slice(&rest[..end]);
                rest = &rest[end..];
            }
            b'{' | b'[' => {
                out.push(*byte);
                if let [close @ (b'}' | b']'), after @ ..] = rest {
                    out.push(*close);
                    rest = after;
                } else {
                    depth += 1;
                    break_line(depth, &mut out);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                break_line(depth, &mut out);
                out.push(*byte);
            }
            b',' => {
                out.push(b',');
                break_line(depth, &mut out);
            }
            b':' => out.extend_from_slice(b": "),
            b' ' | b'\n' | b'\r' | b'\t' => {}
            other => out.push(*other),
        }
    }
    out
}

fn break_line(depth: usize, out: &mut Vec<u8>) {
    out.push(b'\n');
    out.extend(std::iter::repeat_n(b' ', 2 * depth));
}

/// Returns the offset behind the closing quote of a string; `text` starts behind the opening quote.
pub(super) fn string_end(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests;
