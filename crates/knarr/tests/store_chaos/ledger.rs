//! Ledger of acknowledged writes, and checks that members still have them.

use std::collections::BTreeMap;
use std::time::Duration;

use mvcc::{Range, Revision, Span};
use store::client::{Client, Freshness};
use tokio::sync::mpsc;

use super::PREFIX;
use super::writer::{Ack, Report};

/// All acknowledged writes.
pub(crate) struct AcknowledgedWrites {
    reports: mpsc::UnboundedReceiver<Report>,
    acks: Vec<Ack>,
    newest: BTreeMap<String, (Revision, u64)>,
}

impl AcknowledgedWrites {
    pub(crate) fn new(reports: mpsc::UnboundedReceiver<Report>) -> Self {
        Self { reports, acks: Vec::new(), newest: BTreeMap::new() }
    }

    /// Returns the number of acknowledged writes.
    pub(crate) fn len(&mut self) -> usize {
        while let Ok(report) = self.reports.try_recv() {
            self.note(report);
        }
        self.acks.len()
    }

    /// Waits until `by` more writes are acknowledged.
    pub(crate) async fn grow(&mut self, by: usize) {
        let goal = self.len() + by;
        while self.acks.len() < goal {
            let report = self.reports.recv().await.expect("the writers run");
            self.note(report);
        }
    }

    fn note(&mut self, report: Report) {
        let ack = report.unwrap_or_else(|broken| panic!("{broken}"));
        self.newest.insert(ack.key.clone(), (ack.revision, ack.sequence));
        self.acks.push(ack);
    }

    /// Checks that a member has every key with the acknowledged value or a later one.
    pub(crate) async fn check(&mut self, member: &Client) {
        self.len();
        let reply = range(member).await;
        let found: BTreeMap<&[u8], _> = reply.records.iter().map(|record| (record.key(), record)).collect();
        for (key, (revision, sequence)) in &self.newest {
            let record = found.get(key.as_bytes()).unwrap_or_else(|| panic!("{key} is lost"));
            let at = (record.mod_revision, value(record.value()));
            assert!(at >= (*revision, *sequence), "{key}: {at:?} after {revision}");
            assert!((at.0 == *revision) == (at.1 == *sequence), "{key}: {at:?} was not written at {revision}");
            assert!(reply.revision >= at.0, "a read at {} holds a write of {}", reply.revision, at.0);
        }
    }

    /// Checks that the member's history has every acknowledged write at its revision. Returns the history.
    pub(crate) async fn check_history(&mut self, member: &Client) -> BTreeMap<Revision, (Vec<u8>, u64)> {
        self.len();
        let last = range(member).await.revision;
        let mut watch = member.watch(Span::prefix(PREFIX), 1).await.unwrap();
        let mut history = BTreeMap::new();
        watch.request_progress().await.unwrap();
        loop {
            let batch = tokio::time::timeout(super::DEADLINE, watch.next()).await.expect("in time").unwrap();
            for event in &batch.events {
                let record = &event.record;
                let before = history.insert(record.mod_revision, (record.key().to_vec(), value(record.value())));
                assert_eq!(before, None, "two events of one revision");
            }
            if batch.revision >= last {
                break;
            }
            watch.request_progress().await.unwrap();
        }
        for ack in &self.acks {
            let expect = (ack.key.clone().into_bytes(), ack.sequence);
            assert_eq!(history.get(&ack.revision), Some(&expect), "acknowledged at {}", ack.revision);
        }
        history
    }

    /// Checks real-time order: a write that started after another was acknowledged has a greater revision.
    pub(crate) fn check_order(&self) {
        let mut completed: Vec<_> = self.acks.iter().map(|ack| (ack.acked, ack.revision)).collect();
        let mut began: Vec<_> = self.acks.iter().map(|ack| (ack.began, ack.revision)).collect();
        completed.sort_unstable();
        began.sort_unstable();
        let mut completed = completed.into_iter().peekable();
        let mut newest = 0;
        for (began, revision) in began {
            while let Some((_, earlier)) = completed.next_if(|(acked, _)| *acked < began) {
                newest = newest.max(earlier);
            }
            assert!(revision > newest, "revision {revision} was given after {newest} was acknowledged");
        }
    }

    /// Returns the longest time between two acknowledgements.
    pub(crate) fn longest_pause(&self) -> Duration {
        let mut times: Vec<_> = self.acks.iter().map(|ack| ack.acked).collect();
        times.sort_unstable();
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }
}

/// Reads all keys of the writers, once the member responds.
async fn range(member: &Client) -> mvcc::RangeReply {
    let response = async {
        loop {
            match member.range(Range::of(Span::prefix(PREFIX)), Freshness::Linearizable).await {
                Ok(reply) => return reply,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(super::DEADLINE, response).await.expect("a member responds in time")
}

fn value(bytes: &[u8]) -> u64 {
    std::str::from_utf8(bytes).unwrap().parse().unwrap()
}
