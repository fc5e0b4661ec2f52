//! Durations in Go's notation: `1h2m3.5s`.

use std::fmt;
use std::str::FromStr;

use crate::go;

/// A duration in nanoseconds, at most about 292 years, possibly negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(i64);

/// The text is not a valid duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Malformed or out of range.
    #[error("time: invalid duration {}", go::quote_bytes(.0))]
    Invalid(String),
    #[error("time: missing unit in duration {}", go::quote_bytes(.0))]
    MissingUnit(String),
    #[error("time: unknown unit {} in duration {}", go::quote_bytes(.unit), go::quote_bytes(.text))]
    UnknownUnit {
        unit: String,
        /// The complete text.
        text: String,
    },
}

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1000),
    ("µs", 1000),
    ("μs", 1000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3600 * 1_000_000_000),
];

impl Duration {
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Converts seconds, saturating.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Returns whole seconds, truncated toward zero.
    pub const fn whole_seconds(self) -> i64 {
        self.0 / 1_000_000_000
    }
}

impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self(0));
        }
        let invalid = || DurationError::Invalid(text.to_owned());
        if rest.is_empty() {
            return Err(invalid());
        }
        // The most negative duration has no positive counterpart: the sum may exceed the maximum by one, checked at the
        // end.
        const END: u64 = 1 << 63;
        let mut sum = 0_u64;
        while !rest.is_empty() {
            let (nanos, after) = element(rest, text)?;
            sum = sum.checked_add(nanos).filter(|sum| *sum <= END).ok_or_else(invalid)?;
            rest = after;
        }
        match i64::try_from(sum) {
            Ok(sum) => Ok(Self(if negative { -sum } else { sum })),
            Err(_) if negative => Ok(Self(i64::MIN)),
            Err(_) => Err(invalid()),
        }
    }
}

/// Parses one number and its unit.
fn element<'a>(rest: &'a str, text: &str) -> Result<(u64, &'a str), DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let digits = |text: &'a str| text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let (whole, rest) = digits(rest);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let (name, rest) =
        rest.split_at(rest.bytes().position(|byte| byte == b'.' || byte.is_ascii_digit()).unwrap_or(rest.len()));
    if name.is_empty() {
        return Err(DurationError::MissingUnit(text.to_owned()));
    }
    let (_, unit) = UNITS
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| DurationError::UnknownUnit { unit: name.to_owned(), text: text.to_owned() })?;
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
    let nanos = whole.checked_mul(*unit).filter(|nanos| *nanos <= 1 << 63).ok_or_else(invalid)?;
    let nanos = nanos + fraction_of(fraction, *unit);
    if nanos > 1 << 63 { Err(invalid()) } else { Ok((nanos, rest)) }
}

/// Converts digits after a decimal point to nanoseconds. As in Go, digits that do not fit 63 bits are dropped, and the
/// product is computed in floating point.
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let (mut fraction, mut scale) = (0_u64, 1_f64);
    for digit in digits.bytes() {
        match fraction.checked_mul(10).and_then(|more| more.checked_add(u64::from(digit - b'0'))) {
            Some(more) if more <= 1 << 63 => fraction = more,
            _ => break,
        }
        scale *= 10.0;
    }
    (fraction as f64 * (unit as f64 / scale)) as u64
}

impl fmt::Display for Duration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if nanos == 0 {
            return out.write_str("0s");
        }
        if self.0 < 0 {
            out.write_str("-")?;
        }
        match nanos {
            ..1000 => return write!(out, "{nanos}ns"),
            1000..1_000_000 => return write_fraction(out, nanos, 1000, "µs"),
            1_000_000..1_000_000_000 => return write_fraction(out, nanos, 1_000_000, "ms"),
            _ => {}
        }
        let minutes = nanos / (60 * 1_000_000_000);
        if minutes >= 60 {
            write!(out, "{}h", minutes / 60)?;
        }
        if minutes > 0 {
            write!(out, "{}m", minutes % 60)?;
        }
        write_fraction(out, nanos % (60 * 1_000_000_000), 1_000_000_000, "s")
    }
}

/// Writes `value` / `unit` without trailing zeros.
fn write_fraction(out: &mut fmt::Formatter<'_>, value: u64, unit: u64, name: &str) -> fmt::Result {
    write!(out, "{}", value / unit)?;
    if !value.is_multiple_of(unit) {
        let width = unit.ilog10() as usize;
        let digits = format!("{:0width$}", value % unit);
        write!(out, ".{}", digits.trim_end_matches('0'))?;
    }
    out.write_str(name)
}
