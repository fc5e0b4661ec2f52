//! Values of number and string tokens.

use apimachinery::Str;

use crate::ast::Literal;
use crate::lexer::Kind;

/// Returns the value of a number token, negated if a sign precedes it.
pub(super) fn number(kind: Kind, text: &str, negative: bool) -> Result<Literal, String> {
    match kind {
        Kind::Int => {
            let (digits, radix) = radix(text);
            let signed = if negative { format!("-{digits}") } else { digits.to_owned() };
            i64::from_str_radix(&signed, radix).map(Literal::Int).map_err(|_| "invalid int literal".into())
        }
        Kind::Uint => {
            let (digits, radix) = radix(&text[..text.len() - 1]);
            u64::from_str_radix(digits, radix).map(Literal::Uint).map_err(|_| "invalid uint literal".into())
        }
        _ => match text.parse::<f64>() {
            Ok(double) if double.is_finite() => Ok(Literal::Double(if negative { -double } else { double })),
            _ => Err("invalid double literal".into()),
        },
    }
}

fn radix(text: &str) -> (&str, u32) {
    text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16))
}

/// Returns the value of a string or bytes token.
pub(super) fn string(text: &str) -> Result<Literal, String> {
    let quote = text.find(['\'', '"']).ok_or("missing quote")?;
    let prefix = text[..quote].to_ascii_lowercase();
    let body = &text[quote..];
    let triple = body.len() >= 6 && (body.starts_with("'''") || body.starts_with("\"\"\""));
    let width = if triple { 3 } else { 1 };
    let inner = &body[width..body.len() - width];
    // Line breaks in a literal are normalized to one character.
    let unix = if inner.contains('\r') { inner.replace("\r\n", "\n").replace('\r', "\n") } else { inner.to_owned() };
    let bytes = prefix.contains('b');
    if prefix.contains('r') || !unix.contains('\\') {
        return Ok(if bytes { Literal::Bytes(unix.into_bytes().into()) } else { Literal::String(Str::from(unix)) });
    }
    let unescaped = unescape(&unix, bytes)?;
    if bytes {
        return Ok(Literal::Bytes(unescaped.into()));
    }
    let text = String::from_utf8(unescaped).map_err(|_| "unable to unescape string: invalid UTF-8".to_owned())?;
    Ok(Literal::String(Str::from(text)))
}

fn unescape(text: &str, bytes: bool) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = escape(&rest[at + 1..], bytes, &mut out)?;
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// Appends the value of the escape after a backslash to `out` and returns the remaining text.
fn escape<'t>(rest: &'t str, bytes: bool, out: &mut Vec<u8>) -> Result<&'t str, String> {
    let letter = rest.chars().next().ok_or("unable to unescape string, found '\\' as last character")?;
    let after = &rest[letter.len_utf8()..];
    let plain = match letter {
        'a' => 0x07,
        'b' => 0x08,
        'f' => 0x0c,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 0x0b,
        '\\' | '\'' | '"' | '`' | '?' => letter as u8,
        'x' | 'X' => return coded(after, 2, 16, bytes, out),
        'u' if !bytes => return coded(after, 4, 16, false, out),
        'U' if !bytes => return coded(after, 8, 16, false, out),
        '0'..='3' => return coded(rest, 3, 8, bytes, out),
        _ => return Err(format!("unable to unescape string: invalid escape sequence '\\{letter}'")),
    };
    out.push(plain);
    Ok(after)
}

/// Decodes a number of fixed width: a code point, or one byte in bytes literals.
fn coded<'t>(rest: &'t str, width: usize, radix: u32, bytes: bool, out: &mut Vec<u8>) -> Result<&'t str, String> {
    let digits = rest.get(..width).filter(|digits| digits.chars().all(|c| c.is_digit(radix)));
    let code = digits.and_then(|digits| u32::from_str_radix(digits, radix).ok());
    let code = code.ok_or("unable to unescape string: malformed escape sequence")?;
    if bytes {
        out.push(u8::try_from(code).map_err(|_| "unable to unescape string: value out of range".to_owned())?);
    } else {
        let c = char::from_u32(code).ok_or("unable to unescape string: invalid unicode code point")?;
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Ok(&rest[width..])
}
