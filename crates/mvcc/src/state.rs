//! State: all keys, their history since the last compaction, leases, alarms, users and roles, in memory.
//!
//! ```text
//!   heads    by key                 the newest record of each key, including tombstones until they are compacted
//!   history  by key and revision    the records that heads replaced
//!   log      by revision            every change as an event, for watchers
//! ```
//!
//! All three are persistent trees over the same shared records. A clone of the state is a cheap snapshot, which another
//! thread can use while this one changes.

mod apply;
mod authorize;
mod compact;
mod hash;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

pub use apply::{OperationBody, OperationReply, Outcome, Reply};

use crate::command::Alarm;
use crate::directory::Directory;
use crate::error::Error;
use crate::range::{Range, RangeReply};
use crate::record::{Event, Record};
use crate::tree::{Item, Tree};
use crate::{End, LeaseId, Revision, Span};

/// The revision of reads that see the last change, including the changes of a transaction in progress.
const NOW: Revision = Revision::MAX;

/// The entire key space. Cloning is O(1).
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) revision: Revision,
    pub(crate) compact_revision: Revision,
    pub(crate) applied_index: u64,
    /// The oldest revision from which the log is complete.
    pub(crate) log_floor: Revision,
    /// The next change to process in the removal of compacted history; none if there is nothing to remove.
    pub(crate) forgetting: Option<(Revision, u32)>,
    pub(crate) heads: Tree<Head>,
    pub(crate) history: Tree<Past>,
    pub(crate) log: Tree<LoggedEvent>,
    pub(crate) leases: Tree<Lease>,
    /// The heads that have a lease.
    pub(crate) attached: Tree<LeasedRecord>,
    pub(crate) alarms: Arc<BTreeSet<(u64, Alarm)>>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) size_bytes: u64,
}

/// A lease: its keys are deleted unless it is renewed. The leader's lessor decides on expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub id: LeaseId,
    /// Lifetime after a renewal.
    pub ttl_seconds: i64,
    /// Remaining time at the last checkpoint; 0 if there was none since the last renewal.
    pub remaining_seconds: i64,
}

/// A batch of changes of a span, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBatch {
    pub events: Vec<Event>,
    /// The revision to continue from.
    pub next: Revision,
    /// Whether more events are available now.
    pub more: bool,
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// Returns an empty key space at revision 1, as in etcd.
    pub fn new() -> Self {
        Self {
            revision: 1,
            compact_revision: -1,
            applied_index: 0,
            log_floor: 0,
            forgetting: None,
            heads: Tree::default(),
            history: Tree::default(),
            log: Tree::default(),
            leases: Tree::default(),
            attached: Tree::default(),
            alarms: Arc::default(),
            directory: Arc::default(),
            size_bytes: 0,
        }
    }

    /// Returns the revision of the last change.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the oldest readable revision; -1 if nothing was ever compacted.
    pub fn compact_revision(&self) -> Revision {
        self.compact_revision
    }

    /// Returns the oldest revision from which all changes are available.
    pub fn log_floor(&self) -> Revision {
        self.log_floor
    }

    /// Returns the index of the last applied log entry.
    pub fn applied_index(&self) -> u64 {
        self.applied_index
    }

    /// Records a log entry without a command (an election or a membership change).
    pub fn set_applied_index(&mut self, index: u64) {
        self.applied_index = self.applied_index.max(index);
    }

    /// Sets the applied index to that of another log, for a snapshot from which a new cluster starts.
    pub fn rebase(&mut self, index: u64) {
        self.applied_index = index;
    }

    /// Returns the size of all records, which the quota limits.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the number of existing keys.
    pub fn key_count(&self) -> usize {
        self.heads.weight_before(|_| true)
    }

    /// Returns the raised alarms by member.
    pub fn alarms(&self) -> &BTreeSet<(u64, Alarm)> {
        &self.alarms
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Whether the store must not grow.
    pub fn is_full(&self) -> bool {
        self.has_alarm(Alarm::NoSpace) || self.has_alarm(Alarm::Full)
    }

    /// Whether any member raised the alarm.
    pub fn has_alarm(&self, alarm: Alarm) -> bool {
        self.alarms.iter().any(|(_, raised)| *raised == alarm)
    }

    pub fn lease(&self, id: LeaseId) -> Option<Lease> {
        self.leases.find(|lease| lease.id.cmp(&id)).copied()
    }

    /// Returns all leases, ordered by ID.
    pub fn leases(&self) -> impl Iterator<Item = Lease> {
        self.leases.iter().copied()
    }

    /// Returns the keys attached to a lease, in order.
    pub fn lease_keys(&self, id: LeaseId) -> impl Iterator<Item = &Arc<Record>> {
        let records = self.attached.iter_from(move |attached| attached.0.lease < id).map(|attached| &attached.0);
        records.take_while(move |record| record.lease == id)
    }

    /// Returns the current record of a key.
    pub fn key(&self, key: &[u8]) -> Option<&Arc<Record>> {
        self.heads.find(|head| head.0.key().cmp(key)).map(|head| &head.0).filter(|record| !record.is_tombstone())
    }

    /// Reads a span at a revision that is not compacted.
    pub fn range(&self, range: &Range) -> Result<RangeReply, Error> {
        if self.has_alarm(Alarm::Corrupt) {
            return Err(Error::Corrupt);
        }
        self.check_revision(range.revision)?;
        Ok(self.range_as_of(range, self.revision))
    }

    /// Returns the changes of a span from a revision on, in order; fails if some of them were removed.
    pub fn events<'a>(&'a self, span: &'a Span, from: Revision) -> Result<impl Iterator<Item = &'a Event>, Error> {
        if from < self.log_floor {
            return Err(Error::Compacted { compact_revision: self.compact_revision });
        }
        Ok(self.all_events(from).filter(|event| span.contains(event.record.key())))
    }

    /// Returns the next changes of a span from a revision on: entire revisions until there are at least `max` events.
    pub fn event_batch(&self, span: &Span, from: Revision, max: usize) -> Result<EventBatch, Error> {
        let mut events: Vec<Event> = Vec::new();
        for event in self.events(span, from)? {
            if events.len() >= max
                && events.last().is_some_and(|last| last.record.mod_revision != event.record.mod_revision)
            {
                return Ok(EventBatch { events, next: event.record.mod_revision, more: true });
            }
            events.push(event.clone());
        }
        Ok(EventBatch { events, next: self.revision + 1, more: false })
    }

    /// Returns the changes of all keys from a revision on, in order, as far as they are available.
    pub fn all_events(&self, from: Revision) -> impl Iterator<Item = &Event> {
        self.log.iter_from(move |logged| logged.0.record.mod_revision < from).map(|logged| &logged.0)
    }

    pub(crate) fn check_revision(&self, revision: Revision) -> Result<(), Error> {
        if revision > self.revision {
            return Err(Error::FutureRevision);
        }
        if revision > 0 && revision < self.compact_revision {
            return Err(Error::Compacted { compact_revision: self.compact_revision });
        }
        Ok(())
    }

    /// Reads at a validated revision; `revision` is the current revision in the reply (reads in a transaction see its
    /// own writes).
    fn range_as_of(&self, range: &Range, revision: Revision) -> RangeReply {
        let as_of = if range.revision <= 0 { NOW } else { range.revision };
        if range.count_only {
            return RangeReply { revision, count: self.count_as_i64(&range.span, as_of), ..RangeReply::default() };
        }
        let fetch_max = range.fetch_max();
        let records: Vec<Arc<Record>> = self
            .span_heads(&range.span)
            .filter_map(|head| self.live_at(head, as_of))
            .take(fetch_max)
            .cloned()
            .collect();
        let count = if records.len() < fetch_max { records.len() } else { self.count(&range.span, as_of) };
        range.arrange(records, count, revision)
    }

    fn span_heads<'a>(&'a self, span: &'a Span) -> impl Iterator<Item = &'a Arc<Record>> {
        self.heads
            .iter_from(|head| head.0.key() < &span.start[..])
            .map(|head| &head.0)
            .take_while(|record| !span.is_past(record.key()))
    }

    /// Returns the record of the head's key at a revision, if the key existed then.
    fn live_at<'a>(&'a self, head: &'a Arc<Record>, as_of: Revision) -> Option<&'a Arc<Record>> {
        let record = if head.mod_revision <= as_of {
            head
        } else {
            let key = head.key();
            let past = self.history.last_before(|past| past.order_to(key, (as_of, u32::MAX)) != Ordering::Greater)?;
            (past.0.key() == key).then_some(&past.0)?
        };
        (!record.is_tombstone()).then_some(record)
    }

    /// Returns the number of keys of a span at a revision: the current number, minus the created and plus the deleted
    /// ones.
    fn count(&self, span: &Span, as_of: Revision) -> usize {
        let before_end = match &span.end {
            End::Unbounded => self.heads.weight_before(|_| true),
            End::Before(_) | End::Single => self.heads.weight_before(|head| !span.is_past(head.0.key())),
        };
        let now = before_end.saturating_sub(self.heads.weight_before(|head| head.0.key() < &span.start[..]));
        if as_of == NOW {
            return now;
        }
        let (mut created, mut deleted) = (0, 0);
        for event in self.all_events(as_of + 1).filter(|event| span.contains(event.record.key())) {
            created += usize::from(!event.record.is_tombstone() && event.previous.is_none());
            deleted += usize::from(event.record.is_tombstone());
        }
        now + deleted - created
    }

    fn count_as_i64(&self, span: &Span, as_of: Revision) -> i64 {
        i64::try_from(self.count(span, as_of)).expect("memory holds fewer than 2^63 keys")
    }
}

/// The newest record of a key.
#[derive(Clone, Debug)]
pub(crate) struct Head(pub(crate) Arc<Record>);

impl Item for Head {
    fn order(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }

    fn weight(&self) -> usize {
        usize::from(!self.0.is_tombstone())
    }
}

/// A superseded record.
#[derive(Clone, Debug)]
pub(crate) struct Past(pub(crate) Arc<Record>);

impl Past {
    pub(crate) fn order_to(&self, key: &[u8], at: (Revision, u32)) -> Ordering {
        self.0.key().cmp(key).then((self.0.mod_revision, self.0.sub).cmp(&at))
    }
}

impl Item for Past {
    fn order(&self, other: &Self) -> Ordering {
        self.order_to(other.0.key(), (other.0.mod_revision, other.0.sub))
    }
}

/// A change in the event log.
#[derive(Clone, Debug)]
pub(crate) struct LoggedEvent(pub(crate) Event);

impl LoggedEvent {
    fn at(&self) -> (Revision, u32) {
        (self.0.record.mod_revision, self.0.record.sub)
    }
}

impl Item for LoggedEvent {
    fn order(&self, other: &Self) -> Ordering {
        self.at().cmp(&other.at())
    }
}

impl Item for Lease {
    fn order(&self, other: &Self) -> Ordering {
        self.id.cmp(&other.id)
    }
}

/// A head that has a lease.
#[derive(Clone, Debug)]
pub(crate) struct LeasedRecord(pub(crate) Arc<Record>);

impl LeasedRecord {
    fn order_to(&self, record: &Record) -> Ordering {
        self.0.lease.cmp(&record.lease).then_with(|| self.0.key().cmp(record.key()))
    }
}

impl Item for LeasedRecord {
    fn order(&self, other: &Self) -> Ordering {
        self.order_to(&other.0)
    }
}

#[cfg(test)]
mod tests;
