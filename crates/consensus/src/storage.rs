//! Raft storage: the entries in memory since the last compaction.

use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::storage::{GetEntriesContext, RaftState, Storage};
use raft::{Error, StorageError};

/// The in-memory log. Its entries are durable or being written; [`crate::Effects::persist`] contains the latter.
pub(crate) struct MemoryLog {
    initial: RaftState,
    /// Index and term of the entry before the first one.
    base: (u64, u64),
    entries: VecDeque<Entry>,
    bytes: usize,
    /// The metadata of the next snapshot.
    snapshot: Snapshot,
}

impl MemoryLog {
    /// `entries` must follow `base` without gaps.
    pub(crate) fn new(
        hard_state: HardState,
        conf_state: ConfState,
        base: (u64, u64),
        entries: VecDeque<Entry>,
    ) -> Self {
        let bytes = entries.iter().map(size).sum();
        Self { initial: RaftState::new(hard_state, conf_state), base, entries, bytes, snapshot: Snapshot::default() }
    }

    /// Appends entries and replaces existing ones from the first index on.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        let keep = usize::try_from(first.index - self.base.0 - 1).expect("the log in memory is indexed by usize");
        while self.entries.len() > keep {
            let dropped = self.entries.pop_back().expect("the log is longer than the retained part");
            self.bytes -= size(&dropped);
        }
        assert_eq!(self.entries.len(), keep, "raft appends without a gap");
        self.bytes += entries.iter().map(size).sum::<usize>();
        self.entries.extend(entries.iter().cloned());
    }

    /// Clears the log, which continues after a snapshot.
    pub(crate) fn reset(&mut self, base: (u64, u64)) {
        self.base = base;
        self.entries.clear();
        self.bytes = 0;
    }

    /// Drops the oldest entries while `may_drop` returns true for the index and the remaining bytes.
    pub(crate) fn compact(&mut self, may_drop: impl Fn(u64, usize) -> bool) {
        while let Some(entry) = self.entries.front() {
            if !may_drop(entry.index, self.bytes) {
                return;
            }
            self.base = (entry.index, entry.term);
            self.bytes -= size(entry);
            self.entries.pop_front();
        }
    }

    /// Sets the metadata of the next snapshot.
    pub(crate) fn set_snapshot(&mut self, index: u64, term: u64, conf_state: ConfState) {
        let metadata = self.snapshot.mut_metadata();
        metadata.index = index;
        metadata.term = term;
        metadata.set_conf_state(conf_state);
    }

    /// Returns the size of all entries.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn last(&self) -> u64 {
        self.base.0 + self.entries.len() as u64
    }

    fn position(&self, index: u64) -> Option<usize> {
        usize::try_from(index.checked_sub(self.base.0 + 1)?).ok()
    }
}

impl Storage for MemoryLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(self.initial.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let compacted = || Error::Store(StorageError::Compacted);
        let from = self.position(low).ok_or_else(compacted)?;
        let to = self.position(high).ok_or_else(compacted)?;
        if to > self.entries.len() {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let limit = max_size.into().unwrap_or(u64::MAX);
        let mut total = 0_u64;
        let fits = |entry: &&Entry| {
            let first = total == 0;
            total = total.saturating_add(size(entry) as u64);
            first || total <= limit
        };
        Ok(self.entries.range(from..to).take_while(fits).cloned().collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.base.0 {
            return Ok(self.base.1);
        }
        let position = self.position(index).ok_or(Error::Store(StorageError::Compacted))?;
        self.entries.get(position).map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        if self.snapshot.get_metadata().index < request_index.max(self.base.0).max(1) {
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        Ok(self.snapshot.clone())
    }
}

fn size(entry: &Entry) -> usize {
    /// Memory of an entry in addition to its bytes, about the size of its struct.
    const OVERHEAD: usize = 96;
    entry.data.len() + entry.context.len() + OVERHEAD
}
