//! Points in time and durations, read and printed as Go does it for Kubernetes.
//!
//! The calendar is computed here rather than by a library, because Go's reaches beyond the years 0 to 9999: a time
//! just before midnight in the west is a time of the next year in UTC, and is printed as such.

mod duration;
mod parse;

use std::borrow::Cow;
use std::fmt;

pub use duration::{Duration, DurationError};
pub use parse::Error;

/// A point in time, to the nanosecond. Prints as `Time` does: UTC, whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    unix_seconds: i64,
    nanos: u32,
}

/// The layout of a `Time`, by Go's way of naming layouts.
const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
/// The layout of a `MicroTime`.
const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

const DAY_SECONDS: i64 = 24 * 60 * 60;

/// The text that Kubernetes stores for the `Time` written as `text`: UTC, whole seconds.
pub fn canonical(text: &str) -> Result<Cow<'_, str>, Error> {
    Ok(same_or(text, Time::parse(text)?.to_string()))
}

/// The text that Kubernetes stores for the `MicroTime` written as `text`: UTC, six digits.
pub fn canonical_micro(text: &str) -> Result<Cow<'_, str>, Error> {
    Ok(same_or(text, Time::parse_micro(text)?.micro().to_string()))
}

impl Time {
    /// Reads a `Time`: RFC 3339 with any offset, with or without a fraction.
    pub fn parse(text: &str) -> Result<Self, Error> {
        parse::parse(text, SECONDS)
    }

    /// Reads a `MicroTime`: RFC 3339 with any offset and exactly six digits of fraction.
    pub fn parse_micro(text: &str) -> Result<Self, Error> {
        parse::parse(text, MICROS)
    }

    /// Seconds since 1970 in UTC and the nanoseconds after them, as protobuf carries a time. Nanoseconds of a second
    /// or more count on.
    pub const fn from_unix(seconds: i64, nanos: u32) -> Self {
        Self { unix_seconds: seconds.saturating_add((nanos / 1_000_000_000) as i64), nanos: nanos % 1_000_000_000 }
    }

    /// Whole seconds since 1970 in UTC.
    pub const fn unix_seconds(self) -> i64 {
        self.unix_seconds
    }

    /// The nanoseconds after the whole second.
    pub const fn nanos(self) -> u32 {
        self.nanos
    }

    /// The same time without its fraction of a second: all that `Time` carries in any encoding.
    #[must_use]
    pub const fn to_seconds(self) -> Self {
        Self { nanos: 0, ..self }
    }

    /// The same time to the microsecond: all that `MicroTime` carries in any encoding.
    #[must_use]
    pub const fn to_micros(self) -> Self {
        Self { nanos: self.nanos / 1000 * 1000, ..self }
    }

    /// Prints as `MicroTime` does: UTC, six digits of fraction.
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

    /// How long after `earlier` this is; at most what a duration holds, some 292 years.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        let nanos = i128::from(self.unix_seconds) * 1_000_000_000 + i128::from(self.nanos)
            - i128::from(earlier.unix_seconds) * 1_000_000_000
            - i128::from(earlier.nanos);
        Duration::from_nanos(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    /// This much later, or earlier if `by` is negative.
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

/// The days from 1 January 1970 to a date. Months are counted from March, so that the leap day is the last of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * ERA_DAYS + year * 365 + year / 4 - year / 100 + day_of_year - EPOCH_DAY
}

/// The year, month and day that lie so many days after 1 January 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    // A time before the era of the first date that i64 seconds reach cannot come here: days are seconds / 86,400.
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

/// The days of 400 years.
const ERA_DAYS: i64 = 400 * 365 + 97;
/// The days from 1 March of year 0 to 1 January 1970.
const EPOCH_DAY: i64 = 719_468;

fn same_or(text: &str, canonical: String) -> Cow<'_, str> {
    if text == canonical { text.into() } else { canonical.into() }
}

#[cfg(test)]
mod tests;
