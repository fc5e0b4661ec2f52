//! Writers that record acknowledged writes and writes with an unknown outcome.

use std::time::{Duration, Instant};

use mvcc::{Compare, Operation, Put, Relation, Reply, Revision, Span, Target, Txn};
use store::client::{Client, Freshness};
use tokio::sync::{mpsc, watch};

/// Number of keys of one writer, written in turn.
const KEYS: usize = 16;
const VALUE_BYTES: usize = 256;
/// Timeout of a write. It is longer than that of a member, so that the member responds first.
const ATTEMPT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(crate) struct Ack {
    pub key: String,
    /// Counts the writes of its writer.
    pub sequence: u64,
    pub revision: Revision,
    pub began: Instant,
    pub acked: Instant,
}

/// An acknowledged write, or a violated guarantee.
pub(crate) type Report = Result<Ack, String>;

struct Slot {
    key: String,
    /// Revision of the newest value that is certainly stored.
    revision: Revision,
    /// Whether the outcome of a write is unknown. It may still be applied.
    undecided: bool,
}

/// Writes sequentially until `stop` is set.
pub(crate) async fn run(
    client: Client,
    writer: usize,
    reports: mpsc::UnboundedSender<Report>,
    stop: watch::Receiver<bool>,
) {
    let mut slots: Vec<Slot> = (0..KEYS)
        .map(|slot| Slot { key: format!("{}{writer}/{slot}", super::PREFIX), revision: 0, undecided: false })
        .collect();
    let mut sequence = 0;
    while !*stop.borrow() {
        sequence += 1;
        let slot = &mut slots[usize::try_from(sequence).unwrap() % KEYS];
        if let Some(report) = slot.write(&client, sequence).await {
            let _ = reports.send(report);
        }
        // A member that is down refuses connections immediately, so other tasks on this thread run first.
        tokio::task::yield_now().await;
    }
}

/// Returns a transaction that puts the value of `sequence` if the key has the revision `expect`.
pub(crate) fn swap(key: &str, expect: Revision, sequence: u64) -> Txn {
    let span = Span::key(key.to_owned());
    let value = format!("{sequence:0VALUE_BYTES$}").into();
    Txn {
        compare: vec![Compare { span, relation: Relation::Equal, target: Target::ModRevision(expect) }],
        success: vec![Operation::Put(Put {
            key: key.to_owned().into(),
            value: Some(value),
            lease: Some(0),
            want_previous: false,
        })],
        failure: vec![],
    }
}

impl Slot {
    /// Performs one write. Only this writer writes the key, so a comparison fails only after a write with unknown
    /// outcome.
    async fn write(&mut self, client: &Client, sequence: u64) -> Option<Report> {
        if self.undecided
            && let Err(report) = self.read_outcome(client).await
        {
            return report;
        }
        let began = Instant::now();
        let outcome = tokio::time::timeout(ATTEMPT, client.txn(swap(&self.key, self.revision, sequence))).await;
        let Ok(Ok(outcome)) = outcome else {
            self.undecided = true;
            return None;
        };
        if !matches!(outcome.reply, Reply::Txn { succeeded: true, .. }) {
            let broken = format!("{} is not at {}: applied twice, or lost ({outcome:?})", self.key, self.revision);
            return (!self.undecided).then_some(Err(broken));
        }
        if outcome.revision <= self.revision {
            return Some(Err(format!("{} went from {} to {}", self.key, self.revision, outcome.revision)));
        }
        self.undecided = false;
        self.revision = outcome.revision;
        Some(Ok(Ack { key: self.key.clone(), sequence, revision: outcome.revision, began, acked: Instant::now() }))
    }

    /// Reads the outcome of a write without a response. The write may still be in flight, so the outcome is unknown
    /// until the next write is acknowledged.
    async fn read_outcome(&mut self, client: &Client) -> Result<(), Option<Report>> {
        let read = client.get(self.key.clone().into(), Freshness::Linearizable);
        let Ok(Ok((found, _))) = tokio::time::timeout(ATTEMPT, read).await else { return Err(None) };
        let found = found.map_or(0, |record| record.mod_revision);
        if found < self.revision {
            return Err(Some(Err(format!("{} was at {} and is at {found}", self.key, self.revision))));
        }
        self.revision = found;
        Ok(())
    }
}
