//! CronJob schedules: the next and the latest due time in a time zone.

use api::batch::cron_job::schedule::{Calendar, Schedule};
use apimachinery::time::{Duration, Time};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan, Zoned};

/// Years to search before a schedule counts as never due, as in upstream's cron parser.
const YEARS_MAX: i16 = 5;

/// A schedule with its time zone.
pub(super) struct ZonedSchedule {
    schedule: Schedule,
    zone: TimeZone,
}

impl ZonedSchedule {
    /// Parses a schedule. `zone` takes precedence over a TZ prefix in the schedule; the default is UTC.
    // DEVIATION: a schedule without a time zone is in UTC; upstream uses the local time zone of the controller manager.
    pub(super) fn parse(text: &str, zone: Option<&str>) -> Result<Self, String> {
        let schedule = Schedule::parse(text).map_err(|error| format!("unparseable schedule: {text:?} : {error}"))?;
        let stated = text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ="));
        let stated = stated.and_then(|rest| rest.split_once(' ')).map(|(zone, _)| zone);
        let zone = match zone.or(stated).filter(|zone| !matches!(*zone, "" | "Local" | "UTC")) {
            None => TimeZone::UTC,
            Some(name) => TimeZoneDatabase::bundled()
                .get(name)
                .map_err(|_| format!("invalid timeZone: {name:?}: unknown time zone {name}"))?,
        };
        Ok(Self { schedule, zone })
    }

    /// Returns the first due time after `time`; `None` if there is none within [`YEARS_MAX`].
    pub(super) fn after(&self, time: Time) -> Option<Time> {
        match &self.schedule {
            Schedule::Every(every) => Some(time.to_seconds().plus(*every)),
            Schedule::Calendar(calendar) => {
                let minute =
                    Time::from_unix(time.unix_seconds().div_euclid(60) * 60, 0).plus(Duration::from_seconds(60));
                let start = Timestamp::from_second(minute.unix_seconds()).ok()?.to_zoned(self.zone.clone());
                let found = search(calendar, start)?;
                Some(Time::from_unix(found.timestamp().as_second(), 0))
            }
        }
    }

    /// Returns the latest due time in `(from, now]`, and whether more than [`MISSED_MAX`] times were missed.
    pub(super) fn latest(&self, from: Time, now: Time) -> Option<(Time, bool)> {
        let first = self.after(from).filter(|first| *first <= now)?;
        let Some(second) = self.after(first).filter(|second| *second <= now) else { return Some((first, false)) };
        let between = second.since(first).whole_seconds().max(1);
        let missed = now.since(first).whole_seconds() / between + 1;
        // Jump near the end, assuming evenly spaced times. If no time follows there, halve the distance until one does.
        let mut ahead = (missed - 2).max(0).saturating_mul(between);
        let near = |ahead: i64| self.after(first.plus(Duration::from_seconds(ahead - 1))).filter(|next| *next <= now);
        while ahead > 0 && near(ahead).is_none() {
            ahead /= 2;
        }
        let mut latest = first;
        let mut next = near(ahead);
        for _ in 0..STEPS_MAX {
            match next.filter(|next| *next <= now) {
                Some(found) => latest = found,
                None => break,
            }
            next = self.after(latest);
        }
        Some((latest, missed > MISSED_MAX))
    }

    /// Formats a time in the schedule's time zone.
    pub(super) fn written(&self, time: Time) -> String {
        match Timestamp::from_second(time.unix_seconds()) {
            Ok(time) if self.zone != TimeZone::UTC => {
                time.to_zoned(self.zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
            }
            _ => time.to_string(),
        }
    }
}

/// Maximum due times stepped through at the end of a long absence.
const STEPS_MAX: usize = 10_000;
/// Missed times above which a warning is emitted.
const MISSED_MAX: i64 = 100;

/// Advances the largest calendar field that does not match. As upstream, an hour skipped by daylight saving is not made
/// up for, and a repeated hour counts twice.
fn search(calendar: &Calendar, mut at: Zoned) -> Option<Zoned> {
    let last_year = at.year().checked_add(YEARS_MAX)?;
    while at.year() <= last_year {
        let is_in = |set: u64, number: i8| u8::try_from(number).is_ok_and(|number| set >> number & 1 == 1);
        if !is_in(calendar.months, at.month()) {
            let next = at.date().first_of_month().checked_add(1.month()).ok()?;
            at = next.to_zoned(at.time_zone().clone()).ok()?;
        } else if !day_fits(calendar, &at) {
            at = at.tomorrow().ok()?.start_of_day().ok()?;
        } else if !is_in(calendar.hours, at.hour()) {
            let past = i64::from(at.minute()) * 60 + i64::from(at.second());
            at = at.checked_add((3600 - past).seconds()).ok()?;
        } else if !is_in(calendar.minutes, at.minute()) {
            at = at.checked_add((60 - i64::from(at.second())).seconds()).ok()?;
        } else {
            return Some(at);
        }
    }
    None
}

/// Whether the day matches. If both day-of-month and day-of-week are restricted, either is enough.
fn day_fits(calendar: &Calendar, at: &Zoned) -> bool {
    let by_month = calendar.days_of_month >> at.day() & 1 == 1;
    let by_week = calendar.days_of_week >> at.weekday().to_sunday_zero_offset() & 1 == 1;
    if calendar.any_day_of_month || calendar.any_day_of_week { by_month && by_week } else { by_month || by_week }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        Time::parse(text).unwrap()
    }

    #[test]
    fn next_due_time_is_in_the_schedules_time_zone() {
        let check = |schedule: &str, zone: Option<&str>, from: &str, expect: &str| {
            let due = ZonedSchedule::parse(schedule, zone).unwrap();
            assert_eq!(due.after(time(from)).map(|at| at.to_string()).as_deref(), Some(expect), "{schedule} {zone:?}");
        };
        check("* * * * *", None, "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z");
        check("* * * * *", None, "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z");
        check("*/15 3 * * *", None, "2026-01-01T03:45:00Z", "2026-01-02T03:00:00Z");
        check("0 0 1 1 *", None, "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
        check("0 0 29 2 *", None, "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z");
        check("0 0 13 * 5", None, "2026-02-14T00:00:00Z", "2026-02-20T00:00:00Z");
        check("0 9 * * *", Some("Europe/Berlin"), "2026-07-01T00:00:00Z", "2026-07-01T07:00:00Z");
        check("0 9 * * *", Some("Europe/Berlin"), "2026-01-01T00:00:00Z", "2026-01-01T08:00:00Z");
        check("TZ=America/New_York 0 9 * * *", None, "2026-01-01T00:00:00Z", "2026-01-01T14:00:00Z");
        check("30 2 * * *", Some("America/New_York"), "2026-03-08T05:00:00Z", "2026-03-09T06:30:00Z");
        check("30 1 * * *", Some("America/New_York"), "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z");
        check("@every 90s", None, "2026-01-01T00:00:10Z", "2026-01-01T00:01:40Z");
        assert!(ZonedSchedule::parse("0 0 30 2 *", None).unwrap().after(time("2026-01-01T00:00:00Z")).is_none());
        assert!(ZonedSchedule::parse("* * * * *", Some("Moon/Sea")).is_err());
        assert!(ZonedSchedule::parse("* * * *", None).is_err());
    }

    #[test]
    fn latest_missed_time_is_found_after_a_long_absence() {
        let check = |schedule: &str, from: &str, now: &str, expect: Option<(&str, bool)>| {
            let latest = ZonedSchedule::parse(schedule, None).unwrap().latest(time(from), time(now));
            assert_eq!(latest.map(|(at, many)| (at.to_string(), many)), expect.map(|(at, many)| (at.to_owned(), many)));
        };
        check("0 * * * *", "2026-01-01T00:10:00Z", "2026-01-01T00:50:00Z", None);
        check("0 * * * *", "2026-01-01T00:10:00Z", "2026-01-01T01:00:00Z", Some(("2026-01-01T01:00:00Z", false)));
        check("0 * * * *", "2026-01-01T00:10:00Z", "2026-01-01T05:59:00Z", Some(("2026-01-01T05:00:00Z", false)));
        check("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T03:00:30Z", Some(("2026-01-01T03:00:00Z", true)));
        check("0 8 * * 1-5", "2026-01-01T00:00:00Z", "2026-01-12T07:00:00Z", Some(("2026-01-09T08:00:00Z", false)));
    }
}
