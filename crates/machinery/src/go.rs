//! How Go prints values inside the messages that users of Kubernetes know.

use std::fmt::Write as _;

use crate::{Value, json};

/// A string in double quotes as Go's `%q` prints it: printable characters stand as they are.
///
/// ```
/// assert_eq!(machinery::go::quote("a\"b\n\u{200b}é"), r#""a\"b\n\u200bé""#);
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

/// A string in double quotes as Go's `time` package prints it in errors: every byte that is not plain ASCII in
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

/// A float as Go's `%v` prints it: an exponent of at least two digits below 1e-4 and from 1e21 on.
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

/// JSON as Go's encoder writes it: the characters that mean something to HTML are escaped.
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

/// Whether Go counts a character as printable.
pub fn is_printable(c: char) -> bool {
    // A combining mark is printable wherever it stands, but Rust escapes one that stands first.
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
    fn strings_are_quoted_as_go_quotes_them() {
        let check = |text: &str, quoted: &str| assert_eq!(quote(text), quoted);
        check("a b", r#""a b""#);
        check("\0\u{7f}\u{7}\u{b}\\", r#""\x00\x7f\a\v\\""#);
        check("日本\u{301}", "\"日本\u{301}\"");
        check("\u{301}", "\"\u{301}\"");
        check("\u{a0}\u{e000}\u{10ffff}", r#""\u00a0\ue000\U0010ffff""#);
    }

    #[test]
    fn the_time_package_quotes_bytes() {
        assert_eq!(quote_bytes("1µ\"\n"), r#""1\xc2\xb5\"\x0a""#);
    }

    #[test]
    fn floats_are_printed_as_by_percent_v() {
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
    fn json_escapes_what_html_would_read() {
        assert_eq!(json(&value!({"a": "<&>"})), r#"{"a":"\u003c\u0026\u003e"}"#);
    }
}
