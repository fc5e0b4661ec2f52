//! Client of the embedded store.

use std::sync::Arc;

use mvcc::{
    Alarm, AlarmChange, Caller, Command, DirectoryError, End, LeaseId, Outcome, Range, RangeReply, Revision, Span,
    State, Txn, WatchId,
};
use tokio::sync::Notify;

use super::{ClientError, Freshness, TxnOutcome, WatchBatch};
use crate::backend::{Backend, BackendError, NodeBackend, forgotten, propose_within};
use crate::watch::Watchers;

/// Maximum number of events per batch, unless one revision has more.
const BATCH_EVENTS: usize = 1000;
/// Ranges up to this limit are read under the state's lock; longer ones use a snapshot, so that writes do not wait.
const SHORT_RANGE: i64 = 512;

pub(super) async fn range(
    backend: &NodeBackend,
    range: &Range,
    freshness: Freshness,
) -> Result<RangeReply, ClientError> {
    if freshness == Freshness::Linearizable {
        backend.read_index().await?;
    }
    let short = range.span.end == End::Single || range.count_only || (1..=SHORT_RANGE).contains(&range.limit);
    let reply = if short { backend.view(|state| state.range(range)) } else { backend.view(State::clone).range(range) };
    Ok(reply?)
}

pub(super) async fn txn(backend: &NodeBackend, txn: Txn) -> Result<TxnOutcome, ClientError> {
    let outcome = propose(backend, Command::Txn(txn)).await?;
    Ok(TxnOutcome { revision: outcome.revision, reply: outcome.result? })
}

pub(super) async fn compact(backend: &NodeBackend, revision: Revision) -> Result<(), ClientError> {
    backend.propose(Command::Compact { revision }).await?.result?;
    // The client compacts a full store to write again, so the space must be available on return.
    if backend.view(State::is_full) {
        forgotten(backend).await;
    }
    Ok(())
}

pub(super) async fn lease(backend: &NodeBackend, ttl_seconds: i64) -> Result<LeaseId, ClientError> {
    loop {
        let id = random_id();
        match propose(backend, Command::LeaseGrant { id, ttl_seconds }).await?.result {
            Err(mvcc::Error::LeaseExists(_)) => {}
            granted => return Ok(granted.map(|_| id)?),
        }
    }
}

/// Proposes within the quota. An embedded store has no operator who runs `alarm disarm`, so the NOSPACE alarm is
/// cleared automatically once space is available.
async fn propose(backend: &NodeBackend, command: Command) -> Result<Outcome, BackendError> {
    if command.counts_against_quota() && backend.is_alarmed_in_vain() {
        let member = backend.id();
        backend.propose(Command::Alarm { change: AlarmChange::Lower, alarm: Alarm::NoSpace, member }).await?;
    }
    let as_cluster = command.clone().authorized(Caller::Cluster);
    if backend.view(|state| state.directory().is_enabled()) {
        return propose_within(backend, backend.quota_bytes(), as_cluster).await;
    }
    let outcome = propose_within(backend, backend.quota_bytes(), command).await?;
    match &outcome.result {
        // Authentication was enabled by an entry that is not applied here yet.
        Err(mvcc::Error::Directory(DirectoryError::UserEmpty)) => {
            propose_within(backend, backend.quota_bytes(), as_cluster).await
        }
        _ => Ok(outcome),
    }
}

/// Returns a positive random ID.
fn random_id() -> LeaseId {
    let mut bytes = [0; 8];
    // The random generator fails only if the kernel provides no randomness.
    aws_lc_rs::rand::fill(&mut bytes).expect("the kernel gives random bytes");
    (LeaseId::from_be_bytes(bytes) & LeaseId::MAX).max(1)
}

/// A watch of the embedded store.
pub struct LocalWatch {
    backend: NodeBackend,
    watchers: Watchers,
    id: WatchId,
    span: Span,
    next: Revision,
    progress: Arc<Notify>,
}

impl LocalWatch {
    pub(super) fn start(backend: &NodeBackend, span: Span, from: Revision) -> Result<Self, ClientError> {
        let (revision, compact_revision) = backend.view(|state| (state.revision(), state.compact_revision()));
        let next = if from <= 0 { revision + 1 } else { from };
        if next < compact_revision {
            return Err(mvcc::Error::Compacted { compact_revision }.into());
        }
        let mut watchers = backend.hub().watchers();
        let id = watchers.add(span.clone(), next);
        Ok(Self { backend: backend.clone(), watchers, id, span, next, progress: Arc::new(Notify::new()) })
    }

    pub(super) async fn next(&mut self) -> Result<WatchBatch, ClientError> {
        loop {
            let progress_requested = tokio::select! {
                biased;
                (_, mark) = self.watchers.ready() => {
                    self.next = self.next.max(mark);
                    false
                }
                () = self.progress.notified() => true,
            };
            let batch = self.backend.view(|state| state.event_batch(&self.span, self.next, BATCH_EVENTS))?;
            self.next = self.next.max(batch.next);
            if batch.more {
                self.watchers.again(self.id, batch.next);
            }
            if progress_requested || !batch.events.is_empty() {
                return Ok(WatchBatch { events: batch.events, revision: self.next - 1 });
            }
        }
    }

    pub(super) fn request_progress(&self) {
        self.progress.notify_one();
    }
}
