//! Exponential backoff: 10 seconds after the first failure, doubled up to a limit, reset after a long successful run.

use std::collections::BTreeMap;

use apimachinery::time::{Duration, Time};

/// Initial delay, as upstream.
pub const FIRST: Duration = Duration::from_seconds(10);
/// Default maximum delay, as upstream.
pub const MAX: Duration = Duration::from_seconds(300);

/// Backoff delays by key.
#[derive(Clone, Debug)]
pub struct Backoffs {
    entries: BTreeMap<String, Entry>,
    first: Duration,
    max: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    wait: Duration,
    updated: Time,
}

impl Default for Backoffs {
    fn default() -> Self {
        Self::new(MAX)
    }
}

impl Backoffs {
    /// Creates backoffs with delays of at most `max`.
    pub fn new(max: Duration) -> Self {
        Self { entries: BTreeMap::new(), first: FIRST.min(max), max }
    }

    /// Returns the delay and its end if the work that failed at `since` must still wait.
    pub fn waiting(&self, key: &str, since: Time, now: Time) -> Option<(Duration, Time)> {
        let entry = self.entries.get(key).filter(|entry| !self.is_old(**entry, since))?;
        let until = since.plus(entry.wait);
        (now < until).then_some((entry.wait, until))
    }

    /// Whether the work was retried after the failure at `since`.
    pub fn was_tried(&self, key: &str, since: Time) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.updated > since)
    }

    /// Records a retry after the failure at `since`; the next delay is longer.
    pub fn tried(&mut self, key: &str, since: Time, now: Time) {
        let known = self.entries.get(key).copied().filter(|entry| !self.is_old(*entry, since));
        let wait = match known {
            Some(entry) => Duration::from_nanos(entry.wait.nanos().saturating_mul(2)).min(self.max),
            None => self.first,
        };
        self.entries.insert(key.to_owned(), Entry { wait, updated: now });
    }

    /// Resets the backoff of a key after a success.
    pub fn reset(&mut self, key: &str) {
        self.entries.remove(key);
    }

    /// Whether the entry is stale: the work ran for more than twice the maximum delay since its last retry.
    fn is_old(&self, entry: Entry, since: Time) -> bool {
        since.since(entry.updated).nanos() > self.max.nanos().saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Time {
        Time::from_unix(seconds, 0)
    }

    #[test]
    fn backoff_doubles_up_to_the_maximum_and_resets_after_a_long_run() {
        let mut backoffs = Backoffs::default();
        assert_eq!(backoffs.waiting("c", at(0), at(0)), None, "the first restart is immediate");
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..7 {
            backoffs.tried("c", at(now), at(now));
            let (wait, until) = backoffs.waiting("c", at(now + 1), at(now + 1)).unwrap();
            assert_eq!(until, at(now + 1).plus(wait));
            waits.push(wait.whole_seconds());
            now = until.unix_seconds();
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoffs.waiting("c", at(now + 601), at(now + 601)), None);
    }
}
