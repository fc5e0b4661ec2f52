//! Exponential back-off with jitter.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    /// Maximum wait before jitter.
    pub max: Duration,
}

/// The sequence of waits of one retrying caller.
#[derive(Clone, Debug)]
pub struct Waits {
    backoff: Backoff,
    failures: u32,
}

impl Backoff {
    pub const fn waits(self) -> Waits {
        Waits { backoff: self, failures: 0 }
    }

    /// Returns the wait after a number of consecutive failures. `random` in 0..=1 adds up to 100 %, so that clients
    /// that failed together do not retry together.
    pub fn after(self, failures: u32, random: f64) -> Duration {
        // 2^20 times any practical first wait exceeds every limit.
        let grown = self.first.saturating_mul(1 << failures.min(20));
        grown.min(self.max).mul_f64(1.0 + random.clamp(0.0, 1.0))
    }
}

impl Waits {
    /// Returns the next wait and increases the failure count.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.backoff.after(self.failures, random());
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// Restarts with the first wait after a success.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Returns a random number in 0..=1.
pub fn random() -> f64 {
    let mut bytes = [0; 4];
    // A missing random source only removes the jitter and must not fail the caller.
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        return 0.5;
    }
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_the_limit_and_jitter_at_most_doubles_them() {
        let backoff = Backoff { first: Duration::from_millis(100), max: Duration::from_secs(1) };
        let waits: Vec<_> = (0..6).map(|failures| backoff.after(failures, 0.0).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(backoff.after(u32::MAX, 1.0), Duration::from_secs(2));
    }

    #[test]
    fn after_a_success_waits_start_again() {
        let mut waits = Backoff { first: Duration::from_secs(1), max: Duration::from_secs(60) }.waits();
        for _ in 0..5 {
            waits.next_wait();
        }
        assert!(waits.next_wait() >= Duration::from_secs(32));
        waits.reset();
        assert!(waits.next_wait() <= Duration::from_secs(2));
    }
}
