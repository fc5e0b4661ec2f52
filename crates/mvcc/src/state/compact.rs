//! Forgetting history: what a compaction takes out.

use std::cmp::Ordering;

use super::{Past, State};
use crate::Revision;
use crate::error::Error;
use crate::record::Record;

/// Events kept behind a compaction, so that a watcher which has yet to read what was written just before is not cut off.
const LOG_TAIL: usize = 1024;

impl State {
    /// Makes every revision before this one unreadable. The work is proportional to the changes forgotten, not to the keys.
    pub(super) fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        if revision <= self.compact_revision {
            return Err(Error::Compacted { compact_revision: self.compact_revision });
        }
        if revision > self.revision {
            return Err(Error::FutureRevision);
        }
        self.compact_revision = revision;
        // The trees change while the log is read: a clone is the snapshot that stays.
        let log = self.log.clone();
        for logged in log.iter().take_while(|logged| logged.0.record.mod_revision <= revision) {
            self.forget_before(&logged.0.record);
            // What happened at the revision itself can still be watched, so a deletion then is kept until the next compaction.
            if logged.0.record.is_tombstone() && logged.0.record.mod_revision < revision {
                self.forget_tombstone(&logged.0.record);
            }
        }
        self.trim_log();
        Ok(())
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

    /// Drops events before the compaction, whole revisions at a time, down to the tail.
    fn trim_log(&mut self) {
        while self.log.len() > LOG_TAIL
            && let Some(first) = self.log.iter().next()
            && first.0.record.mod_revision < self.compact_revision
        {
            let first = first.clone();
            self.log_floor = first.0.record.mod_revision + 1;
            self.log.remove(|logged| logged.at().cmp(&first.at()));
        }
    }
}
