//! Resolution of plain scalars: the types of YAML 1.1 as in Go's library.

use crate::Value;

/// The type and value of an untagged plain scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Meaning {
    /// `null`, `~` or the empty text.
    Null,
    /// `true`, `yes`, `on` and similar.
    Bool(bool),
    Int(i64),
    /// An integer between 2^63 and 2^64.
    Uint(u64),
    /// Any other number, also `.inf` and `.nan`.
    Float(f64),
    /// A timestamp, which is the same text in JSON.
    Timestamp,
    Text,
}

/// Resolves a plain scalar.
pub(super) fn resolve(text: &str) -> Meaning {
    if let Some(meaning) = word(text) {
        return meaning;
    }
    match text.as_bytes()[0] {
        b'+' | b'-' | b'0'..=b'9' if is_timestamp(text) => Meaning::Timestamp,
        b'+' | b'-' | b'0'..=b'9' => number(&text.replace('_', "")),
        b'.' => float(text).map_or(Meaning::Text, Meaning::Float),
        _ => Meaning::Text,
    }
}

/// Whether a text looks like a base 60 number such as `1:30`, as which older parsers would parse it.
pub(super) fn is_base60(text: &str) -> bool {
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut parts = rest.split(':');
    let first = parts.next().unwrap_or_default();
    let starts = first.starts_with(|it: char| it.is_ascii_digit());
    if !starts || !first.bytes().all(|it| it.is_ascii_digit() || it == b'_') {
        return false;
    }
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return false };
    let (last, fraction) = last.split_once('.').unwrap_or((last, ""));
    let sexagesimal = |part: &str| match part.as_bytes() {
        [ones] => ones.is_ascii_digit(),
        [tens, ones] => (b'0'..=b'5').contains(tens) && ones.is_ascii_digit(),
        _ => false,
    };
    parts.into_iter().chain([last]).all(sexagesimal) && fraction.bytes().all(|it| it.is_ascii_digit() || it == b'_')
}

impl Meaning {
    /// Returns the JSON value; [`None`] for a number that JSON cannot represent.
    pub(super) fn value(self, text: &str) -> Option<Value> {
        Some(match self {
            Self::Null => Value::Null,
            Self::Bool(it) => Value::Bool(it),
            Self::Int(it) => Value::Int(it),
            Self::Uint(it) => Value::Float(it as f64),
            Self::Float(it) => return crate::json::number(it),
            Self::Timestamp | Self::Text => Value::String(text.into()),
        })
    }
}

fn word(text: &str) -> Option<Meaning> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Meaning::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Meaning::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Meaning::Bool(false),
        ".nan" | ".NaN" | ".NAN" => Meaning::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Meaning::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Meaning::Float(f64::NEG_INFINITY),
        _ => return None,
    })
}

/// Parses a number from which the underscores between digits were removed.
fn number(plain: &str) -> Meaning {
    let (negative, digits) = match plain.as_bytes()[0] {
        b'-' => (true, &plain[1..]),
        b'+' => (false, &plain[1..]),
        _ => (false, plain),
    };
    if let Some(size) = magnitude(digits) {
        let signed = if negative { 0_i64.checked_sub_unsigned(size) } else { i64::try_from(size).ok() };
        match signed {
            Some(int) => return Meaning::Int(int),
            None if plain == digits => return Meaning::Uint(size),
            None => {}
        }
    }
    float(plain).map_or(Meaning::Text, Meaning::Float)
}

/// Parses digits with Go's prefixes: 0x, 0o or 0, 0b.
fn magnitude(digits: &str) -> Option<u64> {
    let (base, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // Rust would accept a second sign.
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, base).ok())?
}

/// Parses a decimal number with or without a point and an exponent; [`None`] if it is not finite.
fn float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|it| it.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    let fits = digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty()) && exponent_fits;
    fits.then(|| text.parse::<f64>().ok()).flatten().filter(|float| float.is_finite())
}

/// Whether a text is a date, or a date and a time of day, in a layout of Go's library.
fn is_timestamp(text: &str) -> bool {
    timestamp(text).is_some()
}

fn timestamp(text: &str) -> Option<()> {
    let (year, rest) = text.split_at_checked(4)?;
    let year: u32 = year.bytes().all(|it| it.is_ascii_digit()).then(|| year.parse().ok())??;
    let (month, rest) = short(rest.strip_prefix('-')?)?;
    let (day, rest) = short(rest.strip_prefix('-')?)?;
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=days).contains(&day) {
        return None;
    }
    if rest.is_empty() {
        return Some(());
    }
    let zoned = rest.starts_with(['T', 't']);
    let (hour, rest) = short(rest.strip_prefix(['T', 't', ' '])?)?;
    let (minute, rest) = short(rest.strip_prefix(':')?)?;
    let (second, rest) = short(rest.strip_prefix(':')?)?;
    let rest = match rest.strip_prefix(['.', ',']) {
        Some(fraction) => {
            let rest = fraction.trim_start_matches(|it: char| it.is_ascii_digit());
            (rest.len() < fraction.len()).then_some(rest)?
        }
        None => rest,
    };
    (hour < 24 && minute < 60 && second < 60 && if zoned { is_zone(rest) } else { rest.is_empty() }).then_some(())
}

fn is_zone(text: &str) -> bool {
    let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    match text.as_bytes() {
        [b'Z'] => true,
        [b'+' | b'-', hours @ .., b':', m1, m2] if hours.len() == 2 => {
            digits(hours) && digits(&[*m1, *m2]) && hours < &b"24"[..] && *m1 < b'6'
        }
        _ => false,
    }
}

/// Parses one or two digits.
fn short(text: &str) -> Option<(u32, &str)> {
    let length = text.bytes().take(2).take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(length);
    Some((digits.parse().ok()?, rest))
}
