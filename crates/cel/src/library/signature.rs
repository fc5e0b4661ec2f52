//! Parser of function signatures such as `list<T>.indexOf(T) -> int`.

use super::{Library, Overload, Row, opaque};
use crate::cost::Cost;
use crate::types::{Param, Type};

/// Parses the signature of a row.
///
/// # Panics
/// If the signature is invalid: rows are constants, and a test parses them all.
pub(super) fn parse(library: Library, row: &Row) -> Overload {
    let (head, result) = row.signature.split_once(" -> ").expect("a signature has a result");
    let open = head.rfind_open();
    let (callee, args) = (&head[..open], &head[open + 1..head.len() - 1]);
    let (receiver, name) = match callee.rsplit_once('.') {
        Some((before, name)) if is_type(before) => (Some(read(before)), name),
        _ => (None, callee),
    };
    let args = split(args).into_iter().map(read);
    // Measured: most of these parse or create a short text.
    let steps = match name {
        "isURL" | "url" | "getQuery" | "validate" | "isSemver" | "semver" | "isQuantity" | "quantity" => 8,
        "format" => 12,
        "timestamp" | "duration" | "string" | "double" | "quote" | "isIP" | "ip" | "isCIDR" | "cidr" | "containsIP"
        | "containsCIDR" | "encode" | "decode" => 4,
        _ => 2,
    };
    let bytes_a_step = match (name, row.cost) {
        // Characters are counted sixteen bytes at a time.
        ("size", _) => 256,
        (_, Cost::Unit | Cost::Fixed(_) | Cost::Format | Cost::Quote) => 16,
        // The cost rules of the other functions already grow with the length of their texts.
        _ => 128,
    };
    Overload {
        library,
        name,
        steps,
        bytes_a_step,
        receiver: receiver.is_some(),
        params: receiver.into_iter().chain(args).collect(),
        result: read(result),
        cost: row.cost,
        call: row.call,
    }
}

trait Head {
    fn rfind_open(&self) -> usize;
}

impl Head for str {
    /// Returns the bracket that matches the closing one at the end.
    fn rfind_open(&self) -> usize {
        self.rfind('(').expect("a signature has brackets")
    }
}

/// Whether this is a receiver type instead of a namespace, which is a plain lowercase word that names no type.
fn is_type(text: &str) -> bool {
    text.contains('<')
        || text.len() == 1
        || Type::named(text).is_some()
        || opaque::short(text).is_some()
        || matches!(text, "timestamp" | "duration")
}

fn read(text: &str) -> Type {
    if let Some((outer, rest)) = text.split_once('<') {
        let inner = split(rest.strip_suffix('>').expect("brackets are closed"));
        return match (outer, inner.as_slice()) {
            ("list", [item]) => Type::list(read(item)),
            ("map", [key, value]) => Type::map(read(key), read(value)),
            ("optional", [inner]) => Type::optional(read(inner)),
            ("type", [inner]) => Type::Type(read(inner).into()),
            _ => panic!("unknown type {text}"),
        };
    }
    match text {
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "null" => Type::Null,
        _ if text.len() == 1 => Type::Param(Param::Declared(text.as_bytes()[0])),
        _ => match opaque::short(text) {
            Some(name) => Type::Opaque(name),
            None => Type::named(text).unwrap_or_else(|| panic!("unknown type {text}")),
        },
    }
}

/// Splits at commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text.trim().is_empty() {
        parts.push(text[start..].trim());
    }
    parts
}
