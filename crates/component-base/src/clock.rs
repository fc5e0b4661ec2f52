//! Wall clock: the time source for timestamps in objects, and timer instants for wake-ups.

use apimachinery::time::Time;
pub use client::clock::now;
use tokio::time::Instant;

/// Returns the timer instant for a wake-up at `time`.
pub fn instant(time: Time) -> Instant {
    let nanos = time.since(now()).nanos().max(0).unsigned_abs();
    // Limited to a year, because timers reach no further than some years.
    Instant::now() + std::time::Duration::from_nanos(nanos).min(std::time::Duration::from_secs(365 * 24 * 3600))
}
