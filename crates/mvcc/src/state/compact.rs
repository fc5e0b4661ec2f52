//! Forgetting history: what a compaction takes out.

use std::cmp::Ordering;

use super::{Logged, Past, State};
use crate::Revision;
use crate::error::Error;
use crate::record::Record;

/// Events kept behind a compaction, so that a watcher which has yet to read what was written just before is not cut off.
const LOG_TAIL: usize = 1024;

impl State {
    /// Makes every revision before this one unreadable at once. What it makes unreachable is forgotten by and by, so that
    /// nobody waits for it.
    pub(super) fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        if revision <= self.compact_revision {
            return Err(Error::Compacted { compact_revision: self.compact_revision });
        }
        if revision > self.revision {
            return Err(Error::FutureRevision);
        }
        // A deletion at the revision of the compaction before was kept: it is looked at once more.
        let kept = (self.compact_revision, 0);
        self.forgetting = Some(self.forgetting.map_or((0, 0), |at| at.min(kept)));
        self.compact_revision = revision;
        Ok(())
    }

    /// Makes the next change one of a later revision than it would be.
    pub fn skip_revisions(&mut self, count: u32) {
        self.revision += Revision::from(count);
    }

    /// Makes every revision but the present one unreadable, if it is not so already.
    pub fn compact_all(&mut self) {
        // The only refusals are that it is so, and a revision in the future.
        if self.compact(self.revision).is_ok() {
            self.forget(usize::MAX);
        }
    }

    /// Whether a compaction has left something to forget.
    pub fn is_forgetting(&self) -> bool {
        self.forgetting.is_some()
    }

    /// Forgets what at most so many changes of the log made unreachable; whether there is more. Nothing that can be read
    /// depends on it. The work is proportional to the changes, not to the keys.
    pub fn forget(&mut self, changes_max: usize) -> bool {
        let (Some(at), revision) = (self.forgetting, self.compact_revision) else { return false };
        // The trees change while the log is read: a clone is the snapshot that stays.
        let log = self.log.clone();
        let from = log.iter_from(|logged| logged.at() < at);
        let mut due = from.take_while(|logged| logged.0.record.mod_revision <= revision);
        for logged in due.by_ref().take(changes_max) {
            self.forget_before(&logged.0.record);
            // What happened at the revision itself can still be watched, so a deletion then is kept until the next compaction.
            if logged.0.record.is_tombstone() && logged.0.record.mod_revision < revision {
                self.forget_tombstone(&logged.0.record);
            }
        }
        self.forgetting = due.next().map(Logged::at);
        self.trim_log();
        self.is_forgetting()
    }

    /// The same, with nothing left to forget.
    pub(crate) fn forgotten(&self) -> Self {
        let mut whole = self.clone();
        whole.forget(usize::MAX);
        whole
    }

    fn forget_before(&mut self, record: &Record) {
        let at = (record.mod_revision, record.sub);
        while let Some(past) = self.history.last_before(|past| past.order_to(record.key(), at) == Ordering::Less)
            && past.0.key() == record.key()
        {
            let Past(older) = past.clone();
            self.forget_past(&older);
        }
    }

    fn forget_tombstone(&mut self, tombstone: &Record) {
        let is_head =
            self.heads.find(|head| head.0.key().cmp(tombstone.key())).is_some_and(|head| *head.0 == *tombstone);
        if is_head {
            self.heads.remove(|head| head.0.key().cmp(tombstone.key()));
            self.size_bytes -= tombstone.size_bytes();
        } else {
            self.forget_past(tombstone);
        }
    }

    fn forget_past(&mut self, record: &Record) {
        let at = (record.mod_revision, record.sub);
        if self.history.remove(|past| past.order_to(record.key(), at)).is_some() {
            self.size_bytes -= record.size_bytes();
        }
    }

    /// Drops events before the compaction that have been looked at, whole revisions at a time, down to the tail.
    fn trim_log(&mut self) {
        let forgetting = self.forgetting;
        let looked_at = |logged: &Logged| forgetting.is_none_or(|at| logged.0.record.mod_revision < at.0);
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
