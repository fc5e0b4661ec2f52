//! Cron schedules: five fields, or a descriptor such as `@daily`.

use apimachinery::time::Duration;
use jiff::tz::TimeZoneDatabase;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// At the minutes whose fields are all in these sets.
    Calendar(Calendar),
    /// `@every`: at a fixed interval.
    Every(Duration),
}

/// Bit sets: bit n is set if the field includes n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calendar {
    /// 0 to 59.
    pub minutes: u64,
    /// 0 to 23.
    pub hours: u64,
    /// 1 to 31.
    pub days_of_month: u64,
    /// 1 to 12.
    pub months: u64,
    /// 0 (Sunday) to 6.
    pub days_of_week: u64,
    /// Whether the day of month is `*`. If both day fields are restricted, matching one of them is enough.
    pub any_day_of_month: bool,
    /// Whether the day of week is `*`.
    pub any_day_of_week: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("empty spec string")]
    Empty,
    #[error("invalid schedule format")]
    Format,
    #[error("provided bad location {0}: unknown time zone {0}")]
    Zone(String),
    #[error("expected exactly 5 fields, found {}: [{}]", .0.len(), .0.join(" "))]
    Fields(Vec<String>),
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
    #[error("failed to parse duration {0}: {1}")]
    Duration(String, String),
    #[error("too many hyphens: {0}")]
    Hyphens(String),
    #[error("too many slashes: {0}")]
    Slashes(String),
    #[error("failed to parse int from {0}: strconv.Atoi: parsing {quoted}: {1}", quoted = apimachinery::go::quote(.0))]
    Number(String, &'static str),
    #[error("negative number ({0}) not allowed: {0}")]
    Negative(i64),
    #[error("beginning of range ({0}) below minimum ({1}): {2}")]
    Below(u64, u64, String),
    #[error("end of range ({0}) above maximum ({1}): {2}")]
    Above(u64, u64, String),
    #[error("beginning of range ({0}) beyond end of range ({1}): {2}")]
    Order(u64, u64, String),
    #[error("step of range should be a positive number: {0}")]
    Step(String),
}

impl Schedule {
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::Empty);
        }
        let text = without_zone(text)?;
        if text.starts_with('@') {
            return descriptor(text);
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(Error::Fields(fields.into_iter().map(str::to_owned).collect()));
        };
        let (minutes, _) = field(minute, &MINUTES)?;
        let (hours, _) = field(hour, &HOURS)?;
        let (days_of_month, any_day_of_month) = field(day, &DAYS_OF_MONTH)?;
        let (months, _) = field(month, &MONTHS)?;
        let (days_of_week, any_day_of_week) = field(weekday, &DAYS_OF_WEEK)?;
        Ok(Self::Calendar(Calendar {
            minutes,
            hours,
            days_of_month,
            months,
            days_of_week,
            any_day_of_month,
            any_day_of_week,
        }))
    }
}

/// Whether this is the name of an IANA time zone, in exactly its case.
pub fn is_zone(name: &str) -> bool {
    TimeZoneDatabase::bundled().get(name).is_ok_and(|zone| zone.iana_name() == Some(name))
}

/// The valid range and names of a field.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAYS_OF_MONTH: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const DAYS_OF_WEEK: Bounds = Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

fn without_zone(text: &str) -> Result<&str, Error> {
    let Some(rest) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) else { return Ok(text) };
    // Upstream's parser panics here and its caller recovers.
    let (zone, rest) = rest.split_once(' ').ok_or(Error::Format)?;
    if matches!(zone, "" | "Local") || is_zone(zone) { Ok(rest.trim()) } else { Err(Error::Zone(zone.to_owned())) }
}

fn descriptor(text: &str) -> Result<Schedule, Error> {
    let calendar = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let Some(duration) = text.strip_prefix("@every ") else { return Err(Error::Descriptor(text.to_owned())) };
            let parsed = duration.parse::<Duration>();
            return parsed.map(Schedule::Every).map_err(|error| Error::Duration(text.to_owned(), error.to_string()));
        }
    };
    Schedule::parse(calendar)
}

/// Returns the values of a field as bits, and whether the field is `*`.
fn field(text: &str, bounds: &Bounds) -> Result<(u64, bool), Error> {
    let mut bits = 0;
    let mut open = false;
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (more, star) = range(part, bounds)?;
        bits |= more;
        open |= star;
    }
    Ok((bits, open))
}

fn range(text: &str, bounds: &Bounds) -> Result<(u64, bool), Error> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let mut open = matches!(ends[0], "*" | "?");
    let (start, mut end) = if open {
        (bounds.min, bounds.max)
    } else {
        let start = number_or_name(ends[0], bounds.names, bounds.min)?;
        match ends.as_slice() {
            [_] => (start, start),
            [_, end] => (start, number_or_name(end, bounds.names, bounds.min)?),
            _ => return Err(Error::Hyphens(text.to_owned())),
        }
    };
    let step = match parts.as_slice() {
        [_] => 1,
        [_, step] => {
            let step = number(step)?;
            if ends.len() == 1 {
                end = bounds.max;
            }
            open &= step <= 1;
            step
        }
        _ => return Err(Error::Slashes(text.to_owned())),
    };
    match (start, end) {
        _ if start < bounds.min => Err(Error::Below(start, bounds.min, text.to_owned())),
        _ if end > bounds.max => Err(Error::Above(end, bounds.max, text.to_owned())),
        _ if start > end => Err(Error::Order(start, end, text.to_owned())),
        _ => {
            let step = usize::try_from(step).unwrap_or(usize::MAX);
            if step == 0 {
                return Err(Error::Step(text.to_owned()));
            }
            Ok(((start..=end).step_by(step).fold(0, |bits, number| bits | 1 << number), open))
        }
    }
}

fn number_or_name(text: &str, names: &[&str], first: u64) -> Result<u64, Error> {
    let lower = text.to_lowercase();
    let named = names.iter().position(|name| *name == lower);
    named.map_or_else(|| number(text), |at| Ok(first + at as u64))
}

fn number(text: &str) -> Result<u64, Error> {
    match text.parse::<i64>() {
        Ok(negative) if negative < 0 => Err(Error::Negative(negative)),
        Ok(number) => Ok(number.unsigned_abs()),
        Err(error) => {
            use std::num::IntErrorKind::{NegOverflow, PosOverflow};
            let overflow = matches!(error.kind(), PosOverflow | NegOverflow);
            let message = if overflow { "value out of range" } else { "invalid syntax" };
            Err(Error::Number(text.to_owned(), message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Result<(u64, u64), &str>) {
        let got = match Schedule::parse(text) {
            Ok(Schedule::Calendar(calendar)) => Ok((calendar.minutes, calendar.days_of_week)),
            Ok(Schedule::Every(every)) => Ok((every.whole_seconds().unsigned_abs(), 0)),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(got, expect.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn fields_accept_numbers_and_names() {
        check("0,30 * * * *", Ok((1 | 1 << 30, 0x7f)));
        check("*/20 * * * mon-Wed", Ok((1 | 1 << 20 | 1 << 40, 0b1110)));
        check("50/5 * * jan 0", Ok((1 << 50 | 1 << 55, 1)));
        check("@hourly", Ok((1, 0x7f)));
        check("@every 1h30m", Ok((5400, 0)));
    }

    #[test]
    fn errors_match_the_upstream_cron_library() {
        check("", Err("empty spec string"));
        check("Not Valid!", Err("expected exactly 5 fields, found 2: [Not Valid!]"));
        check("* * * * *2", Err("failed to parse int from *2: strconv.Atoi: parsing \"*2\": invalid syntax"));
        check("60 * * * *", Err("end of range (60) above maximum (59): 60"));
        check("* * 0 * *", Err("beginning of range (0) below minimum (1): 0"));
        check("5-1 * * * *", Err("beginning of range (5) beyond end of range (1): 5-1"));
        check("*/0 * * * *", Err("step of range should be a positive number: */0"));
        check("1-2-3 * * * *", Err("too many hyphens: 1-2-3"));
        check("1/2/3 * * * *", Err("too many slashes: 1/2/3"));
        check("*/-5 * * * *", Err("negative number (-5) not allowed: -5"));
        check("@fortnightly", Err("unrecognized descriptor: @fortnightly"));
        check("TZ=0", Err("invalid schedule format"));
    }

    #[test]
    fn day_field_with_step_is_restricted() {
        let open = |text: &str| match Schedule::parse(text) {
            Ok(Schedule::Calendar(calendar)) => calendar.any_day_of_month,
            _ => false,
        };
        assert!(open("* * * * 1") && open("* * */1 * 1") && !open("* * */2 * 1"));
    }
}
