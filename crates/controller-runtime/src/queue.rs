//! Work queue of a controller: deduplicated keys, with back-off after failures and timed wake-ups.
//!
//! ```text
//!            add                       take
//!   idle ──────────────> ready ──────────────────> running ──done──> idle, or later after a failure or for a wake-up
//!            wake, retry   ^                          │ add
//!   later ─────────────────┘<── done, if changed ─────┘
//! ```
//!
//! A key with a slow decision is throttled before it is processed again. Otherwise a key that depends on thousands of
//! objects would occupy a CPU while they change.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use apimachinery::Key;
use client::backoff::Backoff;
use tokio::time::Instant;

/// The keys of one controller, with at most one entry per key.
pub struct Queue {
    backoff: Backoff,
    ready: VecDeque<Key>,
    later: BTreeSet<(Instant, Key)>,
    resting: BTreeSet<(Instant, Key)>,
    states: HashMap<Key, State>,
}

#[derive(Default)]
struct State {
    ready: bool,
    running: bool,
    rests: bool,
    /// The key was added while it was running or throttled.
    changed: bool,
    failures: u32,
    later: Option<Instant>,
}

/// The outcome of processing a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success; process again at this time, if any.
    Done(Option<Instant>),
    /// Failure; process again after the back-off.
    Failed,
}

impl Queue {
    /// Returns an empty queue with this back-off.
    pub fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            ready: VecDeque::new(),
            later: BTreeSet::new(),
            resting: BTreeSet::new(),
            states: HashMap::new(),
        }
    }

    /// Adds a key after a change.
    pub fn add(&mut self, key: Key) {
        let state = self.states.entry(key.clone()).or_default();
        if state.running || state.rests {
            state.changed = true;
        } else if !state.ready {
            state.ready = true;
            self.ready.push_back(key);
        }
    }

    /// Returns the next key, which counts as running until [`Queue::done`].
    pub fn take(&mut self, now: Instant) -> Option<Key> {
        self.wake(now);
        let key = self.ready.pop_front()?;
        let state = self.states.get_mut(&key).expect("a ready key has a state");
        state.ready = false;
        state.running = true;
        state.changed = false;
        if let Some(at) = state.later.take() {
            self.later.remove(&(at, key.clone()));
        }
        Some(key)
    }

    /// Returns the time at which the next waiting key becomes ready.
    pub fn next_wake(&self) -> Option<Instant> {
        [&self.later, &self.resting].into_iter().filter_map(|keys| keys.first().map(|(at, _)| *at)).min()
    }

    /// Marks a key as no longer running and throttles it for `rest`. `random` is in 0..=1.
    pub fn done(&mut self, key: &Key, outcome: Outcome, rest: Duration, now: Instant, random: f64) {
        let Some(state) = self.states.get_mut(key) else { return };
        state.running = false;
        let later = match outcome {
            Outcome::Done(later) => {
                state.failures = 0;
                later
            }
            Outcome::Failed => {
                let wait = self.backoff.after(state.failures, random);
                state.failures += 1;
                Some(now + wait)
            }
        };
        if let Some(at) = later {
            state.later = Some(at);
            self.later.insert((at, key.clone()));
        }
        if rest.is_zero() {
            self.rested(key);
        } else {
            state.rests = true;
            self.resting.insert((now + rest, key.clone()));
        }
    }

    /// Ends the throttling of a key: it becomes ready if it changed, and its state is dropped if it is idle.
    fn rested(&mut self, key: &Key) {
        let Some(state) = self.states.get_mut(key) else { return };
        state.rests = false;
        if std::mem::take(&mut state.changed) {
            state.ready = true;
            self.ready.push_back(key.clone());
        }
        if !state.ready && state.later.is_none() {
            self.states.remove(key);
        }
    }

    /// Returns the number of ready, running and waiting keys.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    fn wake(&mut self, now: Instant) {
        while let Some((_, key)) = due(&mut self.resting, now) {
            self.rested(&key);
        }
        while let Some((_, key)) = due(&mut self.later, now) {
            if let Some(state) = self.states.get_mut(&key) {
                state.later = None;
            }
            self.add(key);
        }
    }
}

fn due(keys: &mut BTreeSet<(Instant, Key)>, now: Instant) -> Option<(Instant, Key)> {
    if keys.first()?.0 <= now { keys.pop_first() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(name: &str) -> Key {
        Key::cluster(name)
    }

    fn queue() -> (Queue, Instant) {
        (Queue::new(Backoff { first: SECOND, max: 60 * SECOND }), Instant::now())
    }

    #[test]
    fn key_is_deduplicated() {
        let (mut queue, now) = queue();
        for name in ["a", "b", "a", "a"] {
            queue.add(key(name));
        }
        assert_eq!(queue.take(now), Some(key("a")));
        assert_eq!(queue.take(now), Some(key("b")));
        assert_eq!(queue.take(now), None);
    }

    #[test]
    fn key_never_runs_twice_and_is_requeued_after_a_change() {
        let (mut queue, now) = queue();
        queue.add(key("a"));
        queue.take(now);
        queue.add(key("a"));
        assert_eq!(queue.take(now), None);
        queue.done(&key("a"), Outcome::Done(None), Duration::ZERO, now, 0.0);
        assert_eq!(queue.take(now), Some(key("a")));
        queue.done(&key("a"), Outcome::Done(None), Duration::ZERO, now, 0.0);
        assert!(queue.is_empty(), "a finished key is not reconciled");
    }

    #[test]
    fn failed_key_is_retried_with_back_off() {
        let (mut queue, mut now) = queue();
        queue.add(key("a"));
        for wait in [1, 2, 4, 8] {
            assert_eq!(queue.take(now), Some(key("a")));
            queue.done(&key("a"), Outcome::Failed, Duration::ZERO, now, 0.0);
            assert_eq!(queue.take(now), None);
            assert_eq!(queue.next_wake(), Some(now + wait * SECOND));
            now += wait * SECOND;
        }
        queue.take(now);
        queue.done(&key("a"), Outcome::Done(None), Duration::ZERO, now, 0.0);
        queue.add(key("a"));
        queue.take(now);
        queue.done(&key("a"), Outcome::Failed, Duration::ZERO, now, 0.0);
        assert_eq!(queue.next_wake(), Some(now + SECOND), "a success resets the back-off");
    }

    #[test]
    fn change_overrides_the_back_off() {
        let (mut queue, now) = queue();
        queue.add(key("a"));
        queue.take(now);
        queue.done(&key("a"), Outcome::Failed, Duration::ZERO, now, 0.0);
        queue.add(key("a"));
        assert_eq!(queue.take(now), Some(key("a")));
        assert_eq!(queue.next_wake(), None, "reconciling cancels the scheduled wake-up");
    }

    #[test]
    fn key_wakes_at_the_requested_time() {
        let (mut queue, now) = queue();
        queue.add(key("a"));
        queue.take(now);
        queue.done(&key("a"), Outcome::Done(Some(now + 5 * SECOND)), Duration::ZERO, now, 0.0);
        assert_eq!(queue.take(now + 4 * SECOND), None);
        assert_eq!(queue.take(now + 5 * SECOND), Some(key("a")));
    }

    #[test]
    fn throttled_key_is_processed_later_and_only_after_a_change() {
        let (mut queue, now) = queue();
        queue.add(key("a"));
        queue.take(now);
        queue.done(&key("a"), Outcome::Done(None), SECOND, now, 0.0);
        queue.add(key("a"));
        assert_eq!((queue.take(now), queue.next_wake()), (None, Some(now + SECOND)));
        assert_eq!(queue.take(now + SECOND), Some(key("a")));
        queue.done(&key("a"), Outcome::Done(None), SECOND, now + SECOND, 0.0);
        assert_eq!(queue.take(now + 2 * SECOND), None);
        assert!(queue.is_empty());
    }
}
