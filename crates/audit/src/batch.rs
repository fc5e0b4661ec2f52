//! Audit event batching, so that a slow backend is called rarely and does not block requests.

use std::collections::VecDeque;
use std::time::Duration;

/// Batching settings (`--audit-*-batch-*`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Maximum number of queued events; further events are lost.
    pub buffer_size: usize,
    pub batch_size_max: usize,
    /// Maximum time that an event waits for a batch to fill.
    pub wait_max: Duration,
    /// Rate limit of batches.
    pub throttle: Option<Throttle>,
}

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// Average batches per second.
    pub per_second: f64,
    /// Maximum number of batches sent without delay after a pause.
    pub burst: u32,
}

/// The event was lost because the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("audit buffer queue blocked")]
pub struct QueueFullError;

/// A queue of events. All times are relative to one arbitrary origin.
#[derive(Debug)]
pub struct Batcher<T> {
    config: Config,
    waiting: VecDeque<(Duration, T)>,
    /// Time at which the batches sent so far would be complete at the average rate.
    paced_until: Duration,
    closing: bool,
}

impl Config {
    /// Returns upstream's defaults of the webhook backend.
    pub const fn webhook() -> Self {
        let throttle = Throttle { per_second: 10.0, burst: 15 };
        Self { buffer_size: 10_000, batch_size_max: 400, wait_max: Duration::from_secs(30), throttle: Some(throttle) }
    }

    /// Returns upstream's defaults of the log backend.
    pub const fn log() -> Self {
        Self { buffer_size: 10_000, batch_size_max: 1, wait_max: Duration::ZERO, throttle: None }
    }
}

impl<T> Batcher<T> {
    pub const fn new(config: Config) -> Self {
        Self { config, waiting: VecDeque::new(), paced_until: Duration::ZERO, closing: false }
    }

    /// Queues an event.
    pub fn offer(&mut self, event: T, now: Duration) -> Result<(), QueueFullError> {
        if self.waiting.len() >= self.config.buffer_size {
            return Err(QueueFullError);
        }
        self.waiting.push_back((now, event));
        Ok(())
    }

    /// Closes the queue: the remaining events are sent as fast as the throttle allows.
    pub const fn close(&mut self) {
        self.closing = true;
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns a batch that is due: it is full, or its oldest event has waited long enough.
    pub fn take(&mut self, now: Duration) -> Option<Vec<T>> {
        if self.wake_at()? > now {
            return None;
        }
        if let Some(throttle) = self.config.throttle {
            self.paced_until = self.paced_until.max(now).saturating_add(throttle.interval());
        }
        let count = self.waiting.len().min(self.config.batch_size_max.max(1));
        Some(self.waiting.drain(..count).map(|(_, event)| event).collect())
    }

    /// Returns the time at which [`Batcher::take`] returns a batch.
    pub fn wake_at(&self) -> Option<Duration> {
        let due = self.due_at()?;
        let allowed = self.config.throttle.map_or(Duration::ZERO, |throttle| {
            self.paced_until.saturating_sub(throttle.interval().saturating_mul(throttle.burst.saturating_sub(1)))
        });
        Some(due.max(allowed))
    }

    fn due_at(&self) -> Option<Duration> {
        let (oldest, _) = self.waiting.front()?;
        let full = self.waiting.len() >= self.config.batch_size_max;
        Some(if full || self.closing { *oldest } else { oldest.saturating_add(self.config.wait_max) })
    }
}

impl Throttle {
    fn interval(self) -> Duration {
        Duration::try_from_secs_f64(1.0 / self.per_second).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn config(throttle: Option<Throttle>) -> Config {
        Config { buffer_size: 5, batch_size_max: 3, wait_max: Duration::from_secs(30), throttle }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn batch_is_sent_when_full_or_old() {
        let mut batcher = Batcher::new(config(None));
        assert_eq!((batcher.take(seconds(100)), batcher.wake_at()), (None, None));
        batcher.offer(1, seconds(1)).unwrap();
        batcher.offer(2, seconds(5)).unwrap();
        assert_eq!((batcher.take(seconds(30)), batcher.wake_at()), (None, Some(seconds(31))));
        assert_eq!(batcher.take(seconds(31)), Some(vec![1, 2]));
        for event in 3..7 {
            batcher.offer(event, seconds(40)).unwrap();
        }
        assert_eq!(batcher.take(seconds(40)), Some(vec![3, 4, 5]));
        assert_eq!(batcher.take(seconds(40)), None);
        batcher.close();
        assert_eq!(batcher.take(seconds(40)), Some(vec![6]));
    }

    #[test]
    fn events_beyond_the_buffer_size_are_lost() {
        let mut batcher = Batcher::new(config(None));
        assert!((0..5).all(|event| batcher.offer(event, seconds(0)).is_ok()));
        assert_eq!(batcher.offer(5, seconds(0)).unwrap_err().to_string(), "audit buffer queue blocked");
    }

    #[test]
    fn throttle_limits_the_batch_rate() {
        let throttle = Throttle { per_second: 2.0, burst: 1 };
        let mut batcher = Batcher::new(config(Some(throttle)));
        for event in 0..5 {
            batcher.offer(event, seconds(0)).unwrap();
        }
        batcher.close();
        assert_eq!(batcher.take(seconds(0)), Some(vec![0, 1, 2]));
        assert_eq!((batcher.take(seconds(0)), batcher.wake_at()), (None, Some(Duration::from_millis(500))));
        assert_eq!(batcher.take(Duration::from_millis(500)), Some(vec![3, 4]));
        let mut burst = Batcher::new(Config { batch_size_max: 1, ..config(Some(Throttle { burst: 3, ..throttle })) });
        for event in 0..5 {
            burst.offer(event, seconds(10)).unwrap();
        }
        let sent = std::iter::from_fn(|| burst.take(seconds(10))).count();
        assert_eq!((sent, burst.wake_at()), (3, Some(Duration::from_millis(10_500))));
    }

    proptest! {
        #[test]
        fn every_event_is_delivered_once_in_order_and_in_time(gaps in prop::collection::vec(0_u64..20, 1..100)) {
            let mut batcher = Batcher::new(Config { buffer_size: 1000, ..config(None) });
            let (mut now, mut out) = (0, Vec::new());
            let arrivals: Vec<u64> = gaps.iter().map(|gap| { now += gap; now }).collect();
            for (event, arrival) in arrivals.iter().enumerate() {
                while let Some(wake) = batcher.wake_at().filter(|wake| *wake <= seconds(*arrival)) {
                    out.extend(batcher.take(wake).expect("events are due at the wake time").into_iter().map(|event| (event, wake)));
                }
                batcher.offer(event, seconds(*arrival)).unwrap();
            }
            while let Some(wake) = batcher.wake_at() {
                out.extend(batcher.take(wake).expect("events are due at the wake time").into_iter().map(|event| (event, wake)));
            }
            let order: Vec<usize> = out.iter().map(|(event, _)| *event).collect();
            prop_assert_eq!(order, (0..gaps.len()).collect::<Vec<_>>());
            for (event, sent) in out {
                prop_assert!(sent <= seconds(arrivals[event] + 30));
            }
        }
    }
}
