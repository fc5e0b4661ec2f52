//! Character classes and escaped characters in Go's regular expressions.

use std::fmt::Write;

use super::{Code, Error, consumed, names, next};

/// A bracketed or named class.
#[derive(Default)]
pub(super) struct Class {
    negated: bool,
    /// In the syntax of the `regex` crate.
    items: String,
}

/// UTF-16 surrogates, which are not Rust characters. No text contains any.
const SURROGATES: std::ops::RangeInclusive<u32> = 0xD800..=0xDFFF;
const LAST: u32 = 0x10_FFFF;
const EVERYTHING: &str = r"\x{0}-\x{10FFFF}";

/// Go's named ASCII classes and their ranges.
const POSIX: &[(&str, &str)] = &[
    ("alnum", "0-9A-Za-z"),
    ("alpha", "A-Za-z"),
    ("ascii", r"\x00-\x7F"),
    ("blank", r"\t "),
    ("cntrl", r"\x00-\x1F\x7F"),
    ("digit", "0-9"),
    ("graph", "!-~"),
    ("lower", "a-z"),
    ("print", " -~"),
    ("punct", r"!-/:-@\[-`\{-~"),
    ("space", r"\x09-\x0D "),
    ("upper", "A-Z"),
    ("word", "0-9A-Za-z_"),
    ("xdigit", "0-9A-Fa-f"),
];

impl Class {
    /// Parses an escape that denotes a class, such as `\d` or `\pL`.
    pub(super) fn escaped(text: &str) -> Result<Option<(Self, &str)>, Error> {
        let mut class = Self::default();
        let rest = match class.unicode(text)? {
            Some(rest) => Some(rest),
            None => class.perl(text),
        };
        Ok(rest.map(|rest| (class, rest)))
    }

    /// Parses a class from its opening bracket on.
    pub(super) fn bracketed(whole: &str) -> Result<(Self, &str), Error> {
        let mut class = Self::default();
        let mut text = &whole[1..];
        if let Some(rest) = text.strip_prefix('^') {
            class.negated = true;
            text = rest;
        }
        let mut first = true;
        while first || !text.starts_with(']') {
            first = false;
            if let Some(rest) = class.named(text)? {
                text = rest;
            } else if let Some(rest) = class.unicode(text)? {
                text = rest;
            } else if let Some(rest) = class.perl(text) {
                text = rest;
            } else {
                text = class.range(text, whole)?;
            }
        }
        Ok((class, &text[1..]))
    }

    /// Parses a character or a range.
    fn range<'a>(&mut self, text: &'a str, whole: &str) -> Result<&'a str, Error> {
        let (low, mut rest) = class_character(text, whole)?;
        let mut high = low;
        // A hyphen before the closing bracket is a literal.
        if rest.len() >= 2 && rest.starts_with('-') && !rest[1..].starts_with(']') {
            (high, rest) = class_character(&rest[1..], whole)?;
            if high < low {
                return Err(Error::new(Code::InvalidCharRange, consumed(text, rest)));
            }
        }
        self.push(low, high);
        Ok(rest)
    }

    fn push(&mut self, low: u32, high: u32) {
        let parts = [(low, high.min(SURROGATES.start() - 1)), (low.max(SURROGATES.end() + 1), high.min(LAST))];
        for (low, high) in parts.into_iter().filter(|(low, high)| low <= high) {
            let _ = write!(self.items, r"\x{{{low:X}}}-\x{{{high:X}}}");
        }
    }

    /// Parses a named class such as `[:alpha:]`.
    fn named<'a>(&mut self, text: &'a str) -> Result<Option<&'a str>, Error> {
        let Some(after) = text.strip_prefix("[:").filter(|after| !after.is_empty()) else { return Ok(None) };
        let Some((name, rest)) = after.split_once(":]") else { return Ok(None) };
        let (negated, plain) = name.strip_prefix('^').map_or((false, name), |plain| (true, plain));
        match POSIX.iter().find(|(known, _)| *known == plain) {
            Some((_, ranges)) => {
                self.group(negated, ranges);
                Ok(Some(rest))
            }
            None => Err(Error::new(Code::InvalidCharRange, consumed(text, rest))),
        }
    }

    /// Parses `\d`, `\s`, `\w` and their negations.
    fn perl<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let (letter, rest) = next(text.strip_prefix('\\')?)?;
        let ranges = match letter {
            'd' | 'D' => "0-9",
            's' | 'S' => r"\t\n\x0C\r ",
            'w' | 'W' => "0-9A-Za-z_",
            _ => return None,
        };
        self.group(letter.is_ascii_uppercase(), ranges);
        Some(rest)
    }

    fn group(&mut self, negated: bool, ranges: &str) {
        let (open, close) = if negated { ("[^", "]") } else { ("", "") };
        self.items.extend([open, ranges, close]);
    }

    /// Parses `\pL`, `\p{Greek}`, `\P{^Greek}`.
    fn unicode<'a>(&mut self, text: &'a str) -> Result<Option<&'a str>, Error> {
        let Some(letter) = text.strip_prefix('\\').and_then(|text| text.chars().next()) else { return Ok(None) };
        if !matches!(letter, 'p' | 'P') {
            return Ok(None);
        }
        let after = &text[2..];
        let (name, rest) = match next(after) {
            // Go's character decoder reports this code at the end of the text.
            None => return Err(Error::new(Code::InvalidCharRange, text)),
            Some(('{', inner)) => match inner.split_once('}') {
                Some(found) => found,
                None => return Err(Error::new(Code::InvalidCharRange, text)),
            },
            Some((_, rest)) => (consumed(after, rest), rest),
        };
        let (flipped, plain) = name.strip_prefix('^').map_or((false, name), |plain| (true, plain));
        let negated = flipped != (letter == 'P');
        match names::property(plain) {
            None => return Err(Error::new(Code::InvalidCharRange, consumed(text, rest))),
            // No text contains surrogates.
            Some("gc=Cs") if negated => self.items.push_str(EVERYTHING),
            Some("gc=Cs") => {}
            Some(property) => {
                let _ = write!(self.items, r"\{}{{{property}}}", if negated { 'P' } else { 'p' });
            }
        }
        Ok(Some(rest))
    }

    /// Returns the class in the syntax of the `regex` crate.
    pub(super) fn written(&self, fold: bool) -> String {
        let plain = match (self.items.is_empty(), self.negated) {
            (true, true) => format!("[{EVERYTHING}]"),
            (true, false) => nothing(),
            (false, true) => format!("[^{}]", self.items),
            (false, false) => format!("[{}]", self.items),
        };
        if fold { format!("(?i:{plain})") } else { plain }
    }
}

/// Returns an empty class.
pub(super) fn nothing() -> String {
    format!("[^{EVERYTHING}]")
}

fn class_character<'a>(text: &'a str, whole: &str) -> Result<(u32, &'a str), Error> {
    if text.starts_with('\\') {
        return escape(text);
    }
    let (character, rest) = next(text).ok_or_else(|| Error::new(Code::MissingBracket, whole))?;
    Ok((character.into(), rest))
}

/// Parses a character behind a backslash, which may be a UTF-16 surrogate.
pub(super) fn escape(text: &str) -> Result<(u32, &str), Error> {
    let Some((letter, after)) = next(&text[1..]) else { return Err(Error::new(Code::TrailingBackslash, "")) };
    let invalid = |rest: &str| Error::new(Code::InvalidEscape, consumed(text, rest));
    let character = match letter {
        '0'..='7' => return octal(letter, after).ok_or_else(|| invalid(after)),
        'x' => return hexadecimal(after).map_err(invalid),
        'a' => 7,
        'f' => 12,
        'n' => 10,
        'r' => 13,
        't' => 9,
        'v' => 11,
        _ if letter.is_ascii() && !letter.is_ascii_alphanumeric() => letter.into(),
        _ => return Err(invalid(after)),
    };
    Ok((character, after))
}

/// Parses up to three octal digits. A single non-zero digit would be a backreference.
fn octal(first: char, after: &str) -> Option<(u32, &str)> {
    let more = after.bytes().take(2).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    if first != '0' && more == 0 {
        return None;
    }
    let digits = first.to_digit(8).into_iter().chain(after[..more].chars().filter_map(|digit| digit.to_digit(8)));
    Some((digits.fold(0, |number, digit| number * 8 + digit), &after[more..]))
}

/// Parses two hexadecimal digits, or any number of them in braces; the error is the rest at which parsing stopped.
fn hexadecimal(after: &str) -> Result<(u32, &str), &str> {
    let Some(mut rest) = after.strip_prefix('{') else {
        let Some((high, rest)) = next(after) else { return Err(after) };
        let Some((low, rest)) = next(rest) else { return Err(rest) };
        return match (high.to_digit(16), low.to_digit(16)) {
            (Some(high), Some(low)) => Ok((high * 16 + low, rest)),
            _ => Err(rest),
        };
    };
    let (mut number, mut digits) = (0, 0);
    loop {
        let Some((digit, further)) = next(rest) else { return Err(rest) };
        rest = further;
        if digit == '}' {
            return if digits > 0 { Ok((number, rest)) } else { Err(rest) };
        }
        number = match digit.to_digit(16).map(|digit| number * 16 + digit) {
            Some(number) if number <= LAST => number,
            _ => return Err(rest),
        };
        digits += 1;
    }
}
