//! Client-side rate limit: a token bucket with rate and burst.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A token bucket. Callers wait in FIFO order when it is empty.
pub(crate) struct Limit {
    per_second: f64,
    burst: f64,
    state: Mutex<State>,
}

struct State {
    /// Negative by the number of waiting callers.
    tokens: f64,
    at: Instant,
}

impl Limit {
    /// Returns a bucket with a rate and a burst; `None` if the rate means no limit.
    pub(crate) fn new(per_second: f32, burst: u32) -> Option<Self> {
        let burst = f64::from(burst.max(1));
        let state = Mutex::new(State { tokens: burst, at: Instant::now() });
        (per_second > 0.0).then(|| Self { per_second: per_second.into(), burst, state })
    }

    /// Waits until one more request is within the limit.
    pub(crate) async fn acquire(&self) {
        let wait = self.take(Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    fn take(&self, now: Instant) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let gained = now.saturating_duration_since(state.at).as_secs_f64() * self.per_second;
        state.tokens = (state.tokens + gained).min(self.burst) - 1.0;
        state.at = now;
        Duration::from_secs_f64((-state.tokens).max(0.0) / self.per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn burst_passes_immediately_and_the_rest_at_the_rate() {
        let limit = Limit::new(10.0, 3).unwrap();
        let start = Instant::now();
        let waits: Vec<_> = (0..5).map(|_| limit.take(start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        let later = start + Duration::from_secs(60);
        let waits: Vec<_> = (0..4).map(|_| limit.take(later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100], "unused tokens do not accumulate beyond the burst");
    }

    #[test]
    fn rate_of_zero_means_no_limit() {
        assert!(Limit::new(0.0, 10).is_none());
    }
}
