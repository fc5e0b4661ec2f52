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
            _ => write!(out, "\\x{byte:02x}").expect("writing to memory cannot fail"),
        }
    }
    out.push('"');
    out
}

/// Formats a float like Go's `%v`: the shortest digits, below 1e-4 and from 1e6 on with an exponent.
pub fn float(float: f64) -> String {
    if float == 0.0 {
        return if float.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    shortest_float(&format!("{float:e}"))
}

/// Formats a float in Go's shortest notation, `strconv`'s `'g'`, from digits and exponent: `1.5e3` is 1500.
pub(crate) fn shortest_float(scientific: &str) -> String {
    /// The power of ten from which on an exponent is written.
    const EXPONENT_MIN: i32 = 6;
    let (digits, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let digits = digits.replace('.', "");
    if !(-4..EXPONENT_MIN).contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{first}{point}{rest}e{exponent_sign}{:02}", exponent.abs());
    }
    match usize::try_from(exponent + 1) {
        Ok(whole) if whole >= 1 && whole >= digits.len() => format!("{sign}{digits:0<whole$}"),
        Ok(whole) if whole >= 1 => format!("{sign}{}.{}", &digits[..whole], &digits[whole..]),
        _ => format!("{sign}0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1)),
    }
}

/// Formats a value like `%v`: `map[a:1 b:[x y]]`.
pub fn display(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(bool) => bool.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Float(number) => float(*number),
        Value::String(text) => text.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(display).collect::<Vec<_>>().join(" ")),
        Value::Object(object) => {
            let entries = object.iter().map(|(key, value)| format!("{key}:{}", display(value)));
            format!("map[{}]", entries.collect::<Vec<_>>().join(" "))
        }
    }
}

/// Returns the name of the Go type that holds a decoded value.
pub const fn type_name(value: &Value) -> &'static str {
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

/// Resolves the escapes of a Go string between quotes; [`None`] if one is invalid. Bytes that are not UTF-8 become
/// U+FFFD.
///
/// ```
/// assert_eq!(apimachinery::go::unquote(r"a\tb\x41\u00e9", '"').as_deref(), Some("a\tbA\u{e9}"));
/// assert_eq!(apimachinery::go::unquote(r"\'", '"'), None);
/// ```
pub fn unquote(content: &str, quote: char) -> Option<String> {
    let mut out = Vec::with_capacity(content.len());
    let mut rest = content.chars();
    while let Some(c) = rest.next() {
        if c == quote || c == '\n' {
            return None;
        }
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let escape = rest.next()?;
        if let Some(byte) = simple_escape(escape, quote) {
            out.push(byte);
            continue;
        }
        // The first digit of an octal escape is its letter.
        let (first, digits, radix) = match escape {
            'x' => (0, 2, 16),
            'u' => (0, 4, 16),
            'U' => (0, 8, 16),
            '0'..='3' => (escape.to_digit(8)?, 2, 8),
            _ => return None,
        };
        let mut code = first;
        for _ in 0..digits {
            code = code.checked_mul(radix)? + rest.next()?.to_digit(radix)?;
        }
        if digits == 2 {
            out.push(u8::try_from(code).ok()?);
        } else {
            out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

/// Returns the byte of a one-letter escape.
fn simple_escape(letter: char, quote: char) -> Option<u8> {
    match letter {
        'a' => Some(7),
        'b' => Some(8),
        'f' => Some(0x0c),
        'n' => Some(b'\n'),
        'r' => Some(b'\r'),
        't' => Some(b'\t'),
        'v' => Some(0x0b),
        '\\' => Some(b'\\'),
        '\'' | '"' if letter == quote => u8::try_from(letter).ok(),
        _ => None,
    }
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
                write!(out, "\\u{:04x}", u32::from(c)).expect("writing to memory cannot fail");
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
    written.expect("writing to memory cannot fail");
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
        check(1e20, "1e+20");
        check(123_456.0, "123456");
        check(1_234_567.5, "1.2345675e+06");
        check(-1e21, "-1e+21");
        check(1.25e300, "1.25e+300");
    }

    #[test]
    fn json_escapes_html_characters() {
        assert_eq!(json(&value!({"a": "<&>"})), r#"{"a":"\u003c\u0026\u003e"}"#);
    }
}
