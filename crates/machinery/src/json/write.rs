//! Tree to bytes on one line: every object that is stored or sent passes here.

use std::io::Write;

use super::format_float;
use super::parse::special;
use crate::Value;

/// Writes a value behind what is there.
pub(super) fn value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(int) => write!(out, "{int}").expect("memory takes everything"),
        Value::Float(float) => write!(out, "{}", format_float(*float)).expect("memory takes everything"),
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

/// Writes a string in quotes. Nearly none has anything in it that must be escaped.
pub(super) fn string(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = text.as_bytes();
    out.reserve(rest.len() + 2);
    out.push(b'"');
    while let Some(at) = escaped(rest) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            plain @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', plain]),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
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

/// Where the next byte is that does not stand for itself.
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

    proptest! {
        #[test]
        fn what_is_written_is_what_others_write(tree in any_value()) {
            let mut out = Vec::new();
            value(&tree, &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&tree).unwrap());
        }
    }
}
