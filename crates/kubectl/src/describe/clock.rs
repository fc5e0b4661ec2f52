//! The current time and the local time zone: the only inputs of a description other than objects.

use apimachinery::table::human_duration;
use apimachinery::time::Time;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The time and the time zone for ages and timestamps.
#[derive(Clone, Debug)]
pub struct Clock {
    pub now: Time,
    pub zone: TimeZone,
}

impl Clock {
    /// Returns the system's time and time zone.
    pub fn system() -> Self {
        let now = Timestamp::now();
        let nanos = u32::try_from(now.subsec_nanosecond()).unwrap_or_default();
        Self { now: Time::from_unix(now.as_second(), nanos), zone: TimeZone::system() }
    }

    /// Formats a timestamp like `Mon, 02 Jan 2006 15:04:05 -0700`; an empty one is the first second of the year 1.
    pub fn rfc1123(&self, timestamp: &str) -> String {
        self.format(timestamp, "%a, %d %b %Y %H:%M:%S %z", "Mon, 01 Jan 0001 00:00:00 +0000")
    }

    /// Formats a timestamp like `2006-01-02 15:04:05 -0700 MST`.
    pub fn long(&self, timestamp: &str) -> String {
        self.format(timestamp, "%Y-%m-%d %H:%M:%S %z %Z", "0001-01-01 00:00:00 +0000 UTC")
    }

    /// Formats the current time like `2006-01-02T15:04:05Z`, in the local zone.
    pub fn rfc3339(&self) -> String {
        let text = self.format(&self.now.to_string(), "%Y-%m-%dT%H:%M:%S%:z", "");
        text.strip_suffix("+00:00").map_or_else(|| text.clone(), |text| format!("{text}Z"))
    }

    /// Formats the time since `timestamp`: `5m`, or `<unknown>` if it is empty.
    pub fn since(&self, timestamp: &str) -> String {
        parse(timestamp).map_or_else(|| "<unknown>".to_owned(), |time| human_duration(self.now.since(time)))
    }

    fn format(&self, timestamp: &str, layout: &str, zero: &str) -> String {
        let instant = parse(timestamp).and_then(|time| Timestamp::from_second(time.unix_seconds()).ok());
        instant.map_or_else(|| zero.to_owned(), |time| time.to_zoned(self.zone.clone()).strftime(layout).to_string())
    }
}

/// Parses a `Time` or `MicroTime`.
pub fn parse(timestamp: &str) -> Option<Time> {
    Time::parse(timestamp).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_in_the_local_zone() {
        let zone = TimeZone::get("Asia/Seoul").unwrap_or_else(|_| TimeZone::fixed(jiff::tz::offset(9)));
        let clock = Clock { now: Time::from_unix(1_000, 0), zone };
        assert_eq!(clock.rfc1123("2026-11-18T08:39:32Z"), "Wed, 18 Nov 2026 17:39:32 +0900");
        assert_eq!(clock.rfc1123(""), "Mon, 01 Jan 0001 00:00:00 +0000");
        let utc = Clock { zone: TimeZone::UTC, ..clock };
        assert_eq!(utc.long("2026-11-18T08:39:32Z"), "2026-11-18 08:39:32 +0000 UTC");
        assert_eq!(utc.since("1970-01-01T00:15:00Z"), "100s");
        assert_eq!(utc.since(""), "<unknown>");
    }
}
