//! Timestamps and durations: parsing, printing and their fields, optionally in a time zone.

use jiff::civil::{Date, DateTime};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::{Failure, Meter};
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

/// A timestamp in nanoseconds since 1970.
///
/// The maximum of jiff's `Timestamp` is a day before the end of the year 9999, so this is a separate type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    nanos: i128,
}

/// The first second of the year 1, the minimum.
const FIRST: i64 = -62_135_596_800;
/// The last second of the year 9999, the maximum.
const LAST: i64 = 253_402_300_799;

/// The number of steps to look up a time zone by name.
const NAMED_ZONE_STEPS: usize = 50;

pub const ROWS: &[Row] = &[
    row("timestamp.getFullYear() -> int", Cost::Unit, |args| part(args, |at| i64::from(at.year()))),
    row("timestamp.getFullYear(string) -> int", Cost::Unit, |args| part(args, |at| i64::from(at.year()))),
    row("timestamp.getMonth() -> int", Cost::Unit, |args| part(args, |at| i64::from(at.month()) - 1)),
    row("timestamp.getMonth(string) -> int", Cost::Unit, |args| part(args, |at| i64::from(at.month()) - 1)),
    row("timestamp.getDayOfYear() -> int", Cost::Unit, |args| part(args, |at| i64::from(at.day_of_year()) - 1)),
    row("timestamp.getDayOfYear(string) -> int", Cost::Unit, |args| part(args, |at| i64::from(at.day_of_year()) - 1)),
    row("timestamp.getDayOfMonth() -> int", Cost::Unit, |args| part(args, |at| i64::from(at.day()) - 1)),
    row("timestamp.getDayOfMonth(string) -> int", Cost::Unit, |args| part(args, |at| i64::from(at.day()) - 1)),
    row("timestamp.getDate() -> int", Cost::Unit, |args| part(args, |at| i64::from(at.day()))),
    row("timestamp.getDate(string) -> int", Cost::Unit, |args| part(args, |at| i64::from(at.day()))),
    row("timestamp.getDayOfWeek() -> int", Cost::Unit, |args| part(args, weekday)),
    row("timestamp.getDayOfWeek(string) -> int", Cost::Unit, |args| part(args, weekday)),
    row("timestamp.getHours() -> int", Cost::Unit, |args| part(args, |at| i64::from(at.hour()))),
    row("timestamp.getHours(string) -> int", Cost::Unit, |args| part(args, |at| i64::from(at.hour()))),
    row("timestamp.getMinutes() -> int", Cost::Unit, |args| part(args, |at| i64::from(at.minute()))),
    row("timestamp.getMinutes(string) -> int", Cost::Unit, |args| part(args, |at| i64::from(at.minute()))),
    row("timestamp.getSeconds() -> int", Cost::Unit, |args| part(args, |at| i64::from(at.second()))),
    row("timestamp.getSeconds(string) -> int", Cost::Unit, |args| part(args, |at| i64::from(at.second()))),
    row("timestamp.getMilliseconds() -> int", Cost::Unit, |args| part(args, |at| i64::from(at.millisecond()))),
    row("timestamp.getMilliseconds(string) -> int", Cost::Unit, |args| part(args, |at| i64::from(at.millisecond()))),
    row("duration.getHours() -> int", Cost::Unit, |args| whole(args, 3_600_000_000_000)),
    row("duration.getMinutes() -> int", Cost::Unit, |args| whole(args, 60_000_000_000)),
    row("duration.getSeconds() -> int", Cost::Unit, |args| whole(args, 1_000_000_000)),
    row("duration.getMilliseconds() -> int", Cost::Unit, |args| whole(args, 1_000_000)),
];

fn weekday(at: &DateTime) -> i64 {
    i64::from(at.weekday().to_sunday_zero_offset())
}

fn part<'a>(args: Args<'_, 'a>, of: impl Fn(&DateTime) -> i64) -> Result<Val<'a>> {
    let Val::Timestamp(at) = &args.args[0] else { return Err(Failure::no_overload()) };
    let zone = match args.args.get(1) {
        Some(name) => zone(name.as_str().ok_or_else(Failure::no_overload)?, args.meter)?,
        None => TimeZone::UTC,
    };
    let local = at.civil(&zone).ok_or_else(|| Failure::message("timestamp overflow"))?;
    Ok(Val::Int(of(&local)))
}

/// Parses `Europe/Paris`, `UTC`, or an offset such as `-08:00`.
fn zone(name: &str, meter: &Meter<'_>) -> Result<TimeZone> {
    let unknown = || Failure::message(format!("unknown time zone {name}"));
    if name.is_empty() || name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let Some((hours, minutes)) = name.split_once(':') else {
        // The name is looked up in the host's time zone database.
        meter.work(NAMED_ZONE_STEPS)?;
        return TimeZone::get(name).map_err(|_| unknown());
    };
    let (sign, hours) = match hours.strip_prefix('-') {
        Some(hours) => (-1, hours),
        None => (1, hours.strip_prefix('+').unwrap_or(hours)),
    };
    let hours: i32 = hours.parse().map_err(|_| unknown())?;
    let minutes: i32 = minutes.parse().map_err(|_| unknown())?;
    if !(0..=24).contains(&hours) || !(0..60).contains(&minutes) {
        return Err(unknown());
    }
    let offset = Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).map_err(|_| unknown())?;
    Ok(TimeZone::fixed(offset))
}

fn whole<'a>(args: Args<'_, 'a>, unit: i64) -> Result<Val<'a>> {
    match args.args {
        [Val::Duration(nanos)] => Ok(Val::Int(nanos / unit)),
        _ => Err(Failure::no_overload()),
    }
}

impl Moment {
    /// Converts nanoseconds since 1970; [`None`] outside of the years 1 to 9999.
    pub fn from_nanos(nanos: i128) -> Option<Self> {
        let seconds = nanos.div_euclid(1_000_000_000);
        (i128::from(FIRST)..=i128::from(LAST)).contains(&seconds).then_some(Self { nanos })
    }

    /// Converts seconds since 1970; [`None`] outside of the years 1 to 9999.
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        Self::from_nanos(i128::from(seconds) * 1_000_000_000)
    }

    /// Returns whole seconds since 1970, rounded down.
    pub const fn seconds(self) -> i64 {
        self.nanos.div_euclid(1_000_000_000) as i64
    }

    /// Returns nanoseconds since 1970.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// Returns the local date and time in `zone`.
    fn civil(self, zone: &TimeZone) -> Option<DateTime> {
        let seconds = self.seconds().clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
        let offset = zone.to_offset(Timestamp::from_second(seconds).ok()?);
        let local = self.nanos + i128::from(offset.seconds()) * 1_000_000_000;
        let whole = i64::try_from(local.div_euclid(1_000_000_000)).ok()?;
        let fraction = i32::try_from(local.rem_euclid(1_000_000_000)).ok()?;
        jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0).checked_add(SignedDuration::new(whole, fraction)).ok()
    }
}

/// Adds a duration to a timestamp.
pub fn shift<'a>(at: Moment, nanos: i64) -> Result<Val<'a>> {
    let moved = Moment::from_nanos(at.nanos + i128::from(nanos));
    moved.map(Val::Timestamp).ok_or_else(|| Failure::message("timestamp overflow"))
}

/// Parses RFC 3339 as strictly as Go.
pub fn parse_timestamp(text: &str) -> Option<Moment> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| digits(bytes.get(from..to)?);
    let sign = |at: usize, expected: u8| (bytes.get(at) == Some(&expected)).then_some(());
    let day = parse_date(text.get(..10)?)?;
    sign(10, b'T')?;
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    sign(13, b':')?;
    sign(16, b':')?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let rest = text.get(19..)?;
    let (nanos, rest) = match rest.strip_prefix('.') {
        Some(fraction) => {
            let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
            let fraction_digits =
                fraction.as_bytes().get(..length.min(9)).filter(|fraction_digits| !fraction_digits.is_empty())?;
            let zeros = u32::try_from(9 - fraction_digits.len()).ok()?;
            (digits(fraction_digits)? * 10_i64.pow(zeros), &fraction[length..])
        }
        None => (0, rest),
    };
    let offset = match rest.as_bytes() {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] if [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()) => {
            let two = |a: &u8, b: &u8| i64::from(a - b'0') * 10 + i64::from(b - b'0');
            let (hours, minutes) = (two(h1, h2), two(m1, m2));
            if hours > 24 || minutes > 60 {
                return None;
            }
            (hours * 3600 + minutes * 60) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let seconds = day.seconds() + hour * 3600 + minute * 60 + second - offset;
    Moment::from_nanos(i128::from(seconds) * 1_000_000_000 + i128::from(nanos))
}

/// Parses a date such as `2006-01-02`; returns the start of that day.
pub fn parse_date(text: &str) -> Option<Moment> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let number = |from: usize, to: usize| digits(&bytes[from..to]);
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let date = Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    Moment::from_seconds(days_from_epoch(date) * 86_400)
}

/// Parses a decimal number; [`None`] if there are other characters than digits.
fn digits(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
}

/// Returns the days since 1970. Years are counted from March on, so that a leap day is the last day of its year.
fn days_from_epoch(date: Date) -> i64 {
    const DAYS_IN_400_YEARS: i64 = 146_097;
    /// From 1 March of the year 0 to 1 January 1970.
    const EPOCH: i64 = 719_468;
    let (month, day) = (i64::from(date.month()), i64::from(date.day()));
    let year = i64::from(date.year()) - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * DAYS_IN_400_YEARS + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - EPOCH
}

/// Parses Go's notation: `1h30m`, `-1.5s`, `100ms`.
pub fn parse_duration(text: &str) -> Option<i64> {
    text.parse::<apimachinery::time::Duration>().ok().map(apimachinery::time::Duration::nanos)
}

/// Formats as RFC 3339 in UTC, without trailing zeros in the fraction.
pub fn timestamp_text(at: Moment) -> String {
    at.civil(&TimeZone::UTC).map(|civil| format!("{civil}Z")).unwrap_or_default()
}

/// Formats as seconds with a fraction: `5400s`, `1.5s`.
pub fn duration_text(nanos: i64) -> String {
    let (sign, magnitude) = if nanos < 0 { ("-", nanos.unsigned_abs()) } else { ("", nanos.unsigned_abs()) };
    let (seconds, rest) = (magnitude / 1_000_000_000, magnitude % 1_000_000_000);
    if rest == 0 {
        return format!("{sign}{seconds}s");
    }
    format!("{sign}{seconds}.{}s", format!("{rest:09}").trim_end_matches('0'))
}
