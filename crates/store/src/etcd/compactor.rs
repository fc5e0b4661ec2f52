//! Automatic compaction, by age or by number of revisions.

use std::collections::VecDeque;
use std::time::Duration;

use mvcc::{Command, Revision, State};

use crate::backend::Backend;

/// Interval of the revision-based mode.
const REVISION_INTERVAL: Duration = Duration::from_secs(300);
/// Number of samples per period in periodic mode.
const SAMPLES: u32 = 10;

/// The history to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    Period(Duration),
    Revisions(Revision),
}

/// Compacts while this member is the leader; never returns.
pub async fn run<B: Backend>(backend: B, retention: Retention) {
    match retention {
        Retention::Period(period) => {
            let mut samples = Samples::default();
            let interval = sample_interval(period);
            loop {
                let revision = samples.take(backend.view(State::revision), period, interval);
                compact(&backend, revision).await;
                tokio::time::sleep(interval).await;
            }
        }
        Retention::Revisions(keep) => loop {
            tokio::time::sleep(REVISION_INTERVAL).await;
            compact(&backend, Some(backend.view(State::revision) - keep)).await;
        },
    }
}

async fn compact<B: Backend>(backend: &B, revision: Option<Revision>) {
    let Some(revision) = revision.filter(|revision| *revision > 0) else { return };
    let leads = backend.status().leader == backend.id();
    if !leads || revision <= backend.view(State::compact_revision) {
        return;
    }
    match backend.propose(Command::Compact { revision }).await.map(|outcome| outcome.result) {
        Ok(Ok(_)) => tracing::info!(revision, "compacted the key space"),
        Ok(Err(error)) => tracing::warn!(revision, %error, "compaction was rejected"),
        Err(error) => tracing::warn!(revision, %error, "compaction failed; retrying later"),
    }
}

/// Returns a tenth of the period, at most a tenth of an hour: with longer periods compaction runs hourly.
fn sample_interval(period: Duration) -> Duration {
    period.min(Duration::from_secs(3600)) / SAMPLES
}

/// The revisions of the last samples, oldest first.
#[derive(Default)]
struct Samples {
    revisions: VecDeque<Revision>,
}

impl Samples {
    /// Records the current revision. Returns the revision of one period ago, if there is one.
    fn take(&mut self, revision: Revision, period: Duration, interval: Duration) -> Option<Revision> {
        self.revisions.push_back(revision);
        let within = usize::try_from(period.as_nanos() / interval.as_nanos().max(1)).unwrap_or(usize::MAX);
        if self.revisions.len() <= within {
            return None;
        }
        self.revisions.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compacted_revision_is_one_period_old() {
        let (period, interval) = (Duration::from_secs(600), Duration::from_secs(60));
        assert_eq!(sample_interval(period), interval);
        assert_eq!(sample_interval(Duration::from_secs(36_000)), Duration::from_secs(360));
        let mut samples = Samples::default();
        let compacted: Vec<_> = (1..=13).map(|at| samples.take(at * 100, period, interval)).collect();
        assert!(compacted[..10].iter().all(Option::is_none));
        assert_eq!(compacted[10..], [Some(100), Some(200), Some(300)]);
    }
}
