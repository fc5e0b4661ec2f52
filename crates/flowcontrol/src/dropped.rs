//! Retry-After for rejected requests, adapted to the rejection rate.

use std::collections::VecDeque;

/// Maximum Retry-After in seconds.
const RETRY_AFTER_MAX: u64 = 32;

/// The recent rejections of one priority level by second.
#[derive(Clone, Debug)]
pub struct DroppedRequests {
    /// Past seconds with their counts, oldest first, limited to the maximum Retry-After.
    history: VecDeque<(u64, u64)>,
    second: u64,
    count: u64,
    retry_after: u64,
    raised_at: Option<u64>,
}

impl Default for DroppedRequests {
    fn default() -> Self {
        Self { history: VecDeque::new(), second: 0, count: 0, retry_after: 1, raised_at: None }
    }
}

impl DroppedRequests {
    /// Records a rejection and returns the Retry-After in seconds.
    ///
    /// Retry-After doubles if there were many rejections within it, at most once per its duration. It shrinks by a
    /// second if there were few.
    pub fn record(&mut self, second: u64) -> u32 {
        if self.count > 0 && self.second == second {
            self.count += 1;
            return self.retry_after();
        }
        if self.count > 0 {
            self.history.push_back((self.second, self.count));
            while self.history.front().is_some_and(|(then, _)| self.second.saturating_sub(*then) > RETRY_AFTER_MAX) {
                self.history.pop_front();
            }
        }
        (self.second, self.count) = (second, 1);
        self.update(second);
        self.retry_after()
    }

    /// Returns the current Retry-After in seconds.
    pub const fn retry_after(&self) -> u32 {
        self.retry_after as u32
    }

    fn update(&mut self, second: u64) {
        let recent = self.history.iter().rev().take_while(|(then, _)| second.saturating_sub(*then) <= self.retry_after);
        let dropped: u64 = recent.filter(|(then, _)| *then < second).map(|(_, count)| count).sum();
        let may_raise = self.raised_at.is_none_or(|raised| second.saturating_sub(raised) >= self.retry_after);
        if may_raise && dropped >= 3 * self.retry_after {
            self.retry_after = (self.retry_after * 2).min(RETRY_AFTER_MAX);
            self.raised_at = Some(second);
        } else if dropped < self.retry_after && self.retry_after > 1 {
            self.retry_after -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(steps: &[(u64, u64)]) -> u32 {
        let mut dropped = DroppedRequests::default();
        for (second, count) in steps {
            for _ in 0..*count {
                dropped.record(*second);
            }
        }
        dropped.retry_after()
    }

    #[test]
    fn retry_after_doubles_under_load_and_shrinks_without() {
        assert_eq!(after(&[(100, 1)]), 1);
        assert_eq!(after(&[(100, 2), (101, 1)]), 1);
        assert_eq!(after(&[(100, 3), (101, 1)]), 2);
        assert_eq!(
            after(&[(100, 9), (101, 9), (102, 9), (103, 9)]),
            4,
            "the limit is not raised within the waiting time"
        );
        let flood: Vec<_> = (0..200).map(|second| (second, 200)).collect();
        assert_eq!(after(&flood), 32);
        let calm: Vec<_> = flood.into_iter().chain((0..100).map(|step| (300 + 40 * step, 1))).collect();
        assert_eq!(after(&calm), 1);
    }

    #[test]
    fn history_is_bounded() {
        let mut dropped = DroppedRequests::default();
        for second in 0..10_000 {
            dropped.record(second);
        }
        assert!(dropped.history.len() <= RETRY_AFTER_MAX as usize + 1);
    }
}
