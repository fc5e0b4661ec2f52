//! Timestamps and durations, parsed and printed as in Go.
//!
//! The calendar is computed here instead of by a library, because Go's exceeds the years 0 to 9999: a time just before
//! midnight west of Greenwich can be in the next year in UTC, and is printed as such.

mod duration;
mod parse;

use std::borrow::Cow;
use std::fmt;

pub use duration::{Duration, DurationError};
pub use parse::Error;

/// A timestamp with nanoseconds. Displays as `metav1.Time`: UTC, whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    unix_seconds: i64,
    nanos: u32,
}

/// The Go layout of `Time`.
const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
/// The Go layout of `MicroTime`.
const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

const DAY_SECONDS: i64 = 24 * 60 * 60;

/// Returns the text that Kubernetes stores for a `Time`: UTC, whole seconds.
pub fn canonical(text: &str) -> Result<Cow<'_, str>, Error> {
    Ok(same_or(text, Time::parse(text)?.to_string()))
}

/// Returns the text that Kubernetes stores for a `MicroTime`: UTC, six fractional digits.
pub fn canonical_micro(text: &str) -> Result<Cow<'_, str>, Error> {
    Ok(same_or(text, Time::parse_micro(text)?.micro().to_string()))
}

impl Time {
    /// Parses a `Time`: RFC 3339 with any offset, with or without a fraction.
    pub fn parse(text: &str) -> Result<Self, Error> {
        parse::parse(text, SECONDS)
    }

    /// Parses a `MicroTime`: RFC 3339 with any offset and exactly six fractional digits.
    pub fn parse_micro(text: &str) -> Result<Self, Error> {
        parse::parse(text, MICROS)
    }

    /// Builds a time from seconds since 1970 in UTC and nanoseconds, as in protobuf. Nanoseconds of a second or more
    /// carry over.
    pub const fn from_unix(seconds: i64, nanos: u32) -> Self {
        Self { unix_seconds: seconds.saturating_add((nanos / 1_000_000_000) as i64), nanos: nanos % 1_000_000_000 }
    }

    /// Returns whole seconds since 1970 in UTC.
    pub const fn unix_seconds(self) -> i64 {
        self.unix_seconds
    }

    /// Returns the nanoseconds after the whole second.
    pub const fn nanos(self) -> u32 {
        self.nanos
    }

    /// Truncates to seconds, the precision of `Time` in any encoding.
    #[must_use]
    pub const fn to_seconds(self) -> Self {
        Self { nanos: 0, ..self }
    }

    /// Truncates to microseconds, the precision of `MicroTime` in any encoding.
    #[must_use]
    pub const fn to_micros(self) -> Self {
        Self { nanos: self.nanos / 1000 * 1000, ..self }
    }

    /// Displays as `MicroTime`: UTC, six fractional digits.
    pub fn micro(self) -> impl fmt::Display {
        struct Micro(Time);
        impl fmt::Display for Micro {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.write_seconds(out)?;
                write!(out, ".{:06}Z", self.0.nanos / 1000)
            }
        }
        Micro(self)
    }

    /// Returns the duration since `earlier`, saturated at about 292 years.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        let nanos = i128::from(self.unix_seconds) * 1_000_000_000 + i128::from(self.nanos)
            - i128::from(earlier.unix_seconds) * 1_000_000_000
            - i128::from(earlier.nanos);
        Duration::from_nanos(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    /// Returns the time shifted by `by`, which may be negative.
    #[must_use]
    pub const fn plus(self, by: Duration) -> Self {
        let nanos = self.nanos as i64 + by.nanos() % 1_000_000_000;
        let seconds = by.nanos() / 1_000_000_000 + nanos.div_euclid(1_000_000_000);
        Self { unix_seconds: self.unix_seconds.saturating_add(seconds), nanos: nanos.rem_euclid(1_000_000_000) as u32 }
    }

    fn write_seconds(self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.unix_seconds.div_euclid(DAY_SECONDS));
        let second = self.unix_seconds.rem_euclid(DAY_SECONDS);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let sign = if year < 0 { "-" } else { "" };
        let year = year.unsigned_abs();
        write!(out, "{sign}{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    }
}

impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_seconds(out)?;
        out.write_str("Z")
    }
}

/// Returns the days from 1 January 1970 to a date. Months are counted from March, so that the leap day is the last of
/// its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * ERA_DAYS + year * 365 + year / 4 - year / 100 + day_of_year - EPOCH_DAY
}

/// Returns the year, month and day that are `days` days after 1 January 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    // The addition cannot overflow: days are i64 seconds / 86,400.
    let days = days + EPOCH_DAY;
    let (era, day) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    // 1,460 and 36,524 days are four years and a century less the leap day that follows them.
    let year = (day - day / 1460 + day / 36_524 - day / (ERA_DAYS - 1)) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (carry, month) = if month < 10 { (0, month + 3) } else { (1, month - 9) };
    (era * 400 + year + carry, month, day)
}

/// The days in 400 years.
const ERA_DAYS: i64 = 400 * 365 + 97;
/// The days from 1 March of year 0 to 1 January 1970.
const EPOCH_DAY: i64 = 719_468;

fn same_or(text: &str, canonical: String) -> Cow<'_, str> {
    if text == canonical { text.into() } else { canonical.into() }
}

#[cfg(test)]
mod tests;
