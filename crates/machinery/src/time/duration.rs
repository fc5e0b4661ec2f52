//! Durations in Go's notation: `1h2m3.5s`.

use std::fmt;
use std::str::FromStr;

use crate::go;

/// A length of time in nanoseconds, at most some 292 years, possibly negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(i64);

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It does not look like one, or is too long to count.
    #[error("time: invalid duration {}", go::quote_bytes(.0))]
    Invalid(String),
    /// A number has no unit.
    #[error("time: missing unit in duration {}", go::quote_bytes(.0))]
    MissingUnit(String),
    /// A unit is none of the known ones.
    #[error("time: unknown unit {} in duration {}", go::quote_bytes(.unit), go::quote_bytes(.text))]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
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
    /// So many nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// So many seconds, at most what a duration holds.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// All of it in nanoseconds.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// The whole seconds of it; what is left is dropped.
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
        // The most negative duration has no positive counterpart: the sum may go one beyond and is checked at the end.
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

/// Reads one number and its unit.
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

/// Digits after a point in nanoseconds. Those that 63 bits cannot hold are dropped, and the product is that of floats,
/// as in Go.
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

/// `value` / `unit` without trailing zeros.
fn write_fraction(out: &mut fmt::Formatter<'_>, value: u64, unit: u64, name: &str) -> fmt::Result {
    write!(out, "{}", value / unit)?;
    if !value.is_multiple_of(unit) {
        let width = unit.ilog10() as usize;
        let digits = format!("{:0width$}", value % unit);
        write!(out, ".{}", digits.trim_end_matches('0'))?;
    }
    out.write_str(name)
}
