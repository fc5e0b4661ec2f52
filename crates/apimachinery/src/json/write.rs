//! Compact JSON serializer, used for every object that is stored or sent.

use std::io::Write;

use super::format_float;
use super::parse::special;
use crate::Value;

/// Appends a value.
pub(super) fn value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(int) => write!(out, "{int}").expect("writing to memory cannot fail"),
        Value::Float(float) => write!(out, "{}", format_float(*float)).expect("writing to memory cannot fail"),
        Value::String(text) => string(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                self::value(item, out);
            }
            out.push(b']');
        }
        Value::Object(entries) => {
            out.push(b'{');
            for (at, (key, entry)) in entries.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                string(key, out);
                out.push(b':');
                self::value(entry, out);
            }
            out.push(b'}');
        }
    }
}

/// Writes a quoted string. Almost no string needs escapes.
pub(super) fn string(text: &str, out: &mut Vec<u8>) {
    quote(text, out, escaped);
}

/// Writes a quoted string like Go's encoder does by default: escapes `<`, `>` and `&` for HTML, and U+2028 and U+2029,
/// which are line terminators in JavaScript.
pub(super) fn go_string(text: &str, out: &mut Vec<u8>) {
    quote(text, out, escaped_by_go);
}

/// Writes a quoted string; `next` finds the first byte that must be escaped.
#[inline]
fn quote(text: &str, out: &mut Vec<u8>, next: impl Fn(&[u8]) -> Option<usize>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = text.as_bytes();
    out.reserve(rest.len() + 2);
    out.push(b'"');
    while let Some(at) = next(rest) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            plain @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', plain]),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            SEPARATOR => {
                out.extend_from_slice(if rest[at + 2] == 0xa8 { b"\\u2028" } else { b"\\u2029" });
                rest = &rest[at + 3..];
                continue;
            }
            other => {
                let digits = [HEX[usize::from(other >> 4)], HEX[usize::from(other & 0xf)]];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&digits);
            }
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Returns the offset of the next byte that must be escaped.
fn escaped(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(eight) = bytes[at..].first_chunk() {
        let found = special(u64::from_le_bytes(*eight));
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = bytes[at..].iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))?;
    Some(at + rest)
}

/// The first UTF-8 byte of U+2028 and U+2029.
const SEPARATOR: u8 = 0xe2;

/// Returns the offset of the next byte that Go's encoder escapes.
fn escaped_by_go(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += suspect(&bytes[at..])?;
        let is_separator = matches!(&bytes[at..], [SEPARATOR, 0x80, 0xa8 | 0xa9, ..]);
        if bytes[at] != SEPARATOR || is_separator {
            return Some(at);
        }
        at += 1;
    }
}

/// Returns the offset of the next byte that Go's encoder escapes, or that may start a sequence it escapes.
fn suspect(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(eight) = bytes[at..].first_chunk() {
        let found = special_to_go(u64::from_le_bytes(*eight));
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let special = |byte: &u8| matches!(*byte, b'"' | b'\\' | b'<' | b'>' | b'&' | 0..=0x1f | SEPARATOR);
    bytes[at..].iter().position(special).map(|rest| at + rest)
}

/// Marks the first of eight bytes that [`suspect`] searches for by its highest bit. Higher marks are meaningless.
const fn special_to_go(eight: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    const fn zero(bytes: u64) -> u64 {
        bytes.wrapping_sub(ONES) & !bytes
    }
    // A quote and an ampersand differ in one bit, and so do the angle brackets.
    let quote = zero((eight & (ONES * 0xfb)) ^ (ONES * b'"' as u64));
    let bracket = zero((eight & (ONES * 0xfd)) ^ (ONES * b'<' as u64));
    let backslash = zero(eight ^ (ONES * b'\\' as u64));
    let separator = zero(eight ^ (ONES * SEPARATOR as u64));
    let control = eight.wrapping_sub(ONES * 0x20) & !eight;
    (quote | bracket | backslash | separator | control) & HIGHS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Int),
            any::<String>().prop_map(|text| Value::from(text.as_str())),
            "[\\x00-\\x7f]{0,30}".prop_map(|text| Value::from(text.as_str())),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
                prop::collection::btree_map(any::<String>(), inner, 0..8)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn strings_are_escaped_like_go() {
        let check = |text: &str, expect: &str| {
            let mut out = Vec::new();
            go_string(text, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expect);
        };
        check("a < b && c > d", r#""a \u003c b \u0026\u0026 c \u003e d""#);
        check("plain text that is longer than eight bytes", r#""plain text that is longer than eight bytes""#);
        check("\u{2028}\u{2029}\u{2027}€â", "\"\\u2028\\u2029\u{2027}€â\"");
        check("\"\\\n\u{1}\u{7f}", "\"\\\"\\\\\\n\\u0001\u{7f}\"");
    }

    proptest! {
        #[test]
        fn go_escapes_round_trip(text in any::<String>(), ascii in "[\\x00-\\x7f]{0,40}") {
            for text in [text, ascii] {
                let mut out = Vec::new();
                go_string(&text, &mut out);
                prop_assert_eq!(super::super::parse(&out).unwrap(), Value::from(text));
            }
        }

        #[test]
        fn writer_agrees_with_serde_json(tree in any_value()) {
            let mut out = Vec::new();
            value(&tree, &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&tree).unwrap());
        }
    }
}
