//! Go's formatting of values in messages.

use std::fmt::Write as _;

use crate::{Value, json};

/// Quotes a string like Go's `%q`; printable characters are unchanged.
///
/// ```
/// assert_eq!(apimachinery::go::quote("a\"b\n\u{200b}é"), r#""a\"b\n\u200bé""#);
/// ```
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            ' '..='~' => out.push(c),
            _ => push_unusual(&mut out, c),
        }
    }
    out.push('"');
    out
}

/// Quotes a string like the errors of Go's `time` package: every byte that is not plain ASCII is printed in
/// hexadecimal.
pub fn quote_bytes(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' | 0x7f => out.push(char::from(byte)),
            _ => write!(out, "\\x{byte:02x}").expect("writing into memory cannot fail"),
        }
    }
    out.push('"');
    out
}

/// Formats a float like Go's `%v`: below 1e-4 and from 1e21 on with an exponent of at least two digits.
pub fn float(float: f64) -> String {
    let size = float.abs();
    if size == 0.0 || (1e-4..1e21).contains(&size) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').expect("the exponent form has an exponent");
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// Formats JSON like Go's encoder, with HTML escapes.
pub fn json(value: &Value) -> String {
    let plain = json::to_string(value);
    if !plain.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return plain;
    }
    let mut out = String::with_capacity(plain.len() + 16);
    for c in plain.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("writing into memory cannot fail");
            }
            _ => out.push(c),
        }
    }
    out
}

/// Whether Go's `strconv.IsPrint` accepts a character.
pub fn is_printable(c: char) -> bool {
    // Go prints a combining mark in any position, but Rust escapes one at the start of a string.
    let mut probe = [b'a'; 5];
    let length = c.encode_utf8(&mut probe[1..]).len();
    let probe = std::str::from_utf8(&probe[..=length]).expect("a letter and an encoded character are UTF-8");
    matches!(c, '"' | '\'' | '\\') || probe.escape_debug().nth(1) != Some('\\')
}

fn push_unusual(out: &mut String, c: char) {
    let code = u32::from(c);
    let written = match code {
        _ if is_printable(c) => {
            out.push(c);
            Ok(())
        }
        ..0x80 => write!(out, "\\x{code:02x}"),
        0x80..0x1_0000 => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
    written.expect("writing into memory cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn quote_matches_go() {
        let check = |text: &str, quoted: &str| assert_eq!(quote(text), quoted);
        check("a b", r#""a b""#);
        check("\0\u{7f}\u{7}\u{b}\\", r#""\x00\x7f\a\v\\""#);
        check("日本\u{301}", "\"日本\u{301}\"");
        check("\u{301}", "\"\u{301}\"");
        check("\u{a0}\u{e000}\u{10ffff}", r#""\u00a0\ue000\U0010ffff""#);
    }

    #[test]
    fn quote_bytes_matches_gos_time_package() {
        assert_eq!(quote_bytes("1µ\"\n"), r#""1\xc2\xb5\"\x0a""#);
    }

    #[test]
    fn floats_match_percent_v() {
        let check = |value: f64, text: &str| assert_eq!(float(value), text);
        check(0.0, "0");
        check(1.5, "1.5");
        check(0.0001, "0.0001");
        check(0.000_01, "1e-05");
        check(1e20, "100000000000000000000");
        check(-1e21, "-1e+21");
        check(1.25e300, "1.25e+300");
    }

    #[test]
    fn json_escapes_html_characters() {
        assert_eq!(json(&value!({"a": "<&>"})), r#"{"a":"\u003c\u0026\u003e"}"#);
    }
}
