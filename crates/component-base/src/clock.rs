//! Wall clock: the time source for timestamps in objects, and timer instants for wake-ups.

use std::time::{SystemTime, UNIX_EPOCH};

use apimachinery::time::Time;
use tokio::time::Instant;

pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_unix(since.as_secs().try_into().unwrap_or(i64::MAX), since.subsec_nanos())
}

/// Returns the timer instant for a wake-up at `time`.
pub fn instant(time: Time) -> Instant {
    let nanos = time.since(now()).nanos().max(0).unsigned_abs();
    // Limited to a year, because timers reach no further than some years.
    Instant::now() + std::time::Duration::from_nanos(nanos).min(std::time::Duration::from_secs(365 * 24 * 3600))
}
