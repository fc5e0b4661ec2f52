//! Base64 as Go decodes it: padded, with line breaks skipped, and errors with the offset of the invalid byte.

use ::base64::Engine;
use ::base64::alphabet;
use ::base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::Error;
use crate::Str;

/// Go ignores the unused trailing bits of the last digit.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Returns Go's encoding of the bytes in `text`; [`None`] if that equals `text`.
pub(super) fn canonical(text: &str) -> Result<Option<Str>, Error> {
    let read = scan(text.as_bytes()).map_err(|at| Error::Base64 { at })?;
    if !read.line_breaks && read.spare_bits == 0 {
        return Ok(None);
    }
    let joined: Vec<u8> = text.bytes().filter(|byte| !is_line_break(*byte)).collect();
    let bytes = LENIENT.decode(joined).expect("scanned text is base64 but for line breaks");
    Ok(Some(LENIENT.encode(bytes).into()))
}

struct ScanResult {
    line_breaks: bool,
    /// The bits of the last digit that belong to no byte.
    spare_bits: u8,
}

/// Scans digits in groups of four, the last of which may be padded. The error is the offset that Go reports.
fn scan(text: &[u8]) -> Result<ScanResult, usize> {
    let mut read = ScanResult { line_breaks: false, spare_bits: 0 };
    let mut digits = 0;
    let mut last = 0;
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            b'\n' | b'\r' => read.line_breaks = true,
            b'=' => {
                read.spare_bits = match digits % 4 {
                    2 => last & 0x0f,
                    3 => last & 0x03,
                    _ => return Err(at),
                };
                padding(text, at, digits % 4)?;
                read.line_breaks |= text[at..].iter().any(|byte| is_line_break(*byte));
                return Ok(read);
            }
            _ => {
                last = digit(byte).ok_or(at)?;
                digits += 1;
            }
        }
    }
    // Go reports the end minus the number of digits of the unfinished group.
    if digits % 4 == 0 { Ok(read) } else { Err(text.len() - digits % 4) }
}

/// Validates the text from the first `=` at `at`, after `digits` digits of its group.
fn padding(text: &[u8], at: usize, digits: usize) -> Result<(), usize> {
    let skip = |mut at: usize| {
        while text.get(at).is_some_and(|byte| is_line_break(*byte)) {
            at += 1;
        }
        at
    };
    let mut next = at + 1;
    if digits == 2 {
        next = skip(next);
        match text.get(next) {
            None => return Err(text.len()),
            Some(b'=') => next += 1,
            Some(_) => return Err(next - 1),
        }
    }
    let end = skip(next);
    if end < text.len() { Err(end) } else { Ok(()) }
}

const fn is_line_break(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

const fn digit(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_made_canonical() {
        let check =
            |text: &str, expect: Option<&str>| assert_eq!(canonical(text).unwrap().as_deref(), expect, "{text:?}");
        check("", None);
        check("cGFzcw==", None);
        check("YWJj", None);
        check("YWI=", None);
        check("YW\nJj\r\n", Some("YWJj"));
        check("YQ=\n=\n", Some("YQ=="));
        check("YR==", Some("YQ=="));
        check("\n", Some(""));
    }

    #[test]
    fn base64_errors_name_the_same_byte_as_go() {
        let check = |text: &str, at: usize| assert_eq!(canonical(text), Err(Error::Base64 { at }), "{text:?}");
        check("Not Valid!", 3);
        check("YWJjZ", 4);
        check("YWJjZA", 4);
        check("YQ=", 3);
        check("YQ=a", 2);
        check("YQ==a", 4);
        check("Y===", 1);
        check("=", 0);
        check("é", 0);
    }
}
