//! The time, as objects state it: the one place in the driver that reads the clock of the machine.

use std::time::{SystemTime, UNIX_EPOCH};

use machinery::time::Time;
use tokio::time::Instant;

/// The time now.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_unix(since.as_secs().try_into().unwrap_or(i64::MAX), since.subsec_nanos())
}

/// When a timer must go off to wake at `time`.
pub fn instant(time: Time) -> Instant {
    let nanos = time.since(now()).nanos().max(0).unsigned_abs();
    // A year is as good as never, and timers reach no further than some years.
    Instant::now() + std::time::Duration::from_nanos(nanos).min(std::time::Duration::from_secs(365 * 24 * 3600))
}
