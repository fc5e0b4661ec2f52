//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use apimachinery::time::Time;

/// Returns the current time with nanoseconds.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_unix(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}
