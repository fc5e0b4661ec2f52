//! Compaction: removal of history.

use std::cmp::Ordering;

use super::{LoggedEvent, Past, State};
use crate::Revision;
use crate::error::Error;
use crate::record::Record;

/// Number of events kept before the compact revision, so that watchers with pending recent events are not cancelled.
const LOG_TAIL: usize = 1024;

impl State {
    /// Makes all revisions before this one unreadable immediately. The unreachable records are removed incrementally,
    /// so that no request waits for it.
    pub(super) fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        if revision <= self.compact_revision {
            return Err(Error::Compacted { compact_revision: self.compact_revision });
        }
        if revision > self.revision {
            return Err(Error::FutureRevision);
        }
        // A deletion at the previous compact revision was kept, so it is checked again.
        let first_retained = (self.compact_revision, 0);
        self.forgetting = Some(self.forgetting.map_or((0, 0), |at| at.min(first_retained)));
        self.compact_revision = revision;
        Ok(())
    }

    /// Increases the revision, so that the next change skips `count` revisions.
    pub fn skip_revisions(&mut self, count: u32) {
        self.revision += Revision::from(count);
    }

    /// Makes all revisions before the current one unreadable.
    pub fn compact_all(&mut self) {
        // The only errors are that the revision is already compacted, or in the future.
        if self.compact(self.revision).is_ok() {
            self.prune(usize::MAX);
        }
    }

    /// Whether a compaction has records left to remove.
    pub fn is_forgetting(&self) -> bool {
        self.forgetting.is_some()
    }

    /// Removes the records that at most `changes_max` changes of the log made unreachable. Returns whether there is
    /// more. Has no visible effect. The work is proportional to the changes, not to the keys.
    pub fn prune(&mut self, changes_max: usize) -> bool {
        let (Some(at), revision) = (self.forgetting, self.compact_revision) else { return false };
        // The trees change while the log is read: the clone is a stable snapshot.
        let log = self.log.clone();
        let from = log.iter_from(|logged| logged.at() < at);
        let mut due = from.take_while(|logged| logged.0.record.mod_revision <= revision);
        for logged in due.by_ref().take(changes_max) {
            self.prune_before(&logged.0.record);
            // Changes at the compact revision can still be watched, so a deletion there is kept until the next
            // compaction.
            if logged.0.record.is_tombstone() && logged.0.record.mod_revision < revision {
                self.prune_tombstone(&logged.0.record);
            }
        }
        self.forgetting = due.next().map(LoggedEvent::at);
        self.trim_log();
        self.is_forgetting()
    }

    /// Returns the state with all compacted records removed.
    pub(crate) fn compacted_state(&self) -> Self {
        let mut whole = self.clone();
        whole.prune(usize::MAX);
        whole
    }

    fn prune_before(&mut self, record: &Record) {
        let at = (record.mod_revision, record.sub);
        while let Some(past) = self.history.last_before(|past| past.order_to(record.key(), at) == Ordering::Less)
            && past.0.key() == record.key()
        {
            let Past(older) = past.clone();
            self.prune_past(&older);
        }
    }

    fn prune_tombstone(&mut self, tombstone: &Record) {
        let is_head =
            self.heads.find(|head| head.0.key().cmp(tombstone.key())).is_some_and(|head| *head.0 == *tombstone);
        if is_head {
            self.heads.remove(|head| head.0.key().cmp(tombstone.key()));
            self.size_bytes -= tombstone.size_bytes();
        } else {
            self.prune_past(tombstone);
        }
    }

    fn prune_past(&mut self, record: &Record) {
        let at = (record.mod_revision, record.sub);
        if self.history.remove(|past| past.order_to(record.key(), at)).is_some() {
            self.size_bytes -= record.size_bytes();
        }
    }

    /// Drops processed events before the compact revision, in entire revisions, down to [`LOG_TAIL`].
    fn trim_log(&mut self) {
        let forgetting = self.forgetting;
        let looked_at = |logged: &LoggedEvent| forgetting.is_none_or(|at| logged.0.record.mod_revision < at.0);
        while self.log.len() > LOG_TAIL
            && let Some(first) = self.log.iter().next()
            && first.0.record.mod_revision < self.compact_revision
            && looked_at(first)
        {
            let first = first.clone();
            self.log_floor = first.0.record.mod_revision + 1;
            self.log.remove(|logged| logged.at().cmp(&first.at()));
        }
    }
}
