//! Recovery from disk: the newest checkpoint and the log after it.

use consensus::{Entry, Group, RecoveredState, SnapshotMeta};
use mvcc::State;

use crate::checkpoint::{self, CheckpointError};
use crate::disk::Disk;
use crate::log::{self, Log, LogError};
use crate::value_file::ValueFile;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Log(#[from] LogError),
    /// Entries between checkpoint and log are missing.
    #[error(
        "the checkpoint ends at entry {checkpoint} but the log starts at entry {log}: the entries between them are missing. In a cluster, remove this \
         member, empty its data directory and add it again; a single member is restored from a snapshot (knarr store snapshot restore)"
    )]
    Gap {
        /// The last entry of the checkpoint.
        checkpoint: u64,
        /// The first entry of the log.
        log: u64,
    },
}

/// The recovered state of a member.
pub struct RecoveredMember<D: Disk> {
    pub log: Log<D>,
    /// The state of the checkpoint.
    pub state: State,
    /// The recovered consensus state.
    pub recovered: RecoveredState,
    /// The number of this start, from 1.
    pub boot: u64,
    /// Bytes removed from the torn tail of the log.
    pub torn_bytes: u64,
}

/// Index and term of the first entry of every cluster, which is never written: the initial members agree on it by their
/// configuration. A member that joins later has no entries, so it receives a snapshot with the membership.
const BOOTSTRAP: (u64, u64) = (1, 1);

/// Prepares an empty directory for a member of a new cluster with this membership.
pub fn bootstrap<D: Disk>(disk: &D, group: Group) -> Result<(), CheckpointError> {
    bootstrap_with(disk, group, State::new())
}

/// Like [`bootstrap`], with an initial state: a restored snapshot.
pub fn bootstrap_with<D: Disk>(disk: &D, group: Group, mut state: State) -> Result<(), CheckpointError> {
    let (index, term) = BOOTSTRAP;
    state.rebase(index);
    checkpoint::write(disk, &SnapshotMeta { index, term, group }, &state)
}

/// Opens the directory of a member.
pub fn open<D: Disk>(disk: D, config: log::Config) -> Result<RecoveredMember<D>, OpenError> {
    open_to(disk, config, &ValueFile::memory())
}

/// Like [`open`], but stores the values in `value_file`.
pub fn open_to<D: Disk>(disk: D, config: log::Config, value_file: &ValueFile) -> Result<RecoveredMember<D>, OpenError> {
    let checkpoint = checkpoint::read_to(&disk, value_file)?;
    let (snapshot, state) = checkpoint.unwrap_or_else(|| (SnapshotMeta::default(), State::new()));
    let (mut log, contents) = Log::open_to(disk, config, value_file)?;
    let entries = reconcile(&snapshot, contents.entries)?;
    if entries.is_empty() && snapshot.index > 0 {
        // Staged again, because a crash may have occurred between the checkpoint and its reset record. The next entry
        // follows the checkpoint and must not look like one whose predecessors are lost.
        log.stage_reset(snapshot.index);
        log.write()?;
        log.sync()?;
    }
    let recovered = RecoveredState { snapshot, entries, hard_state: contents.hard_state };
    Ok(RecoveredMember { log, state, recovered, boot: contents.boot, torn_bytes: contents.torn_bytes })
}

/// Drops entries that a received snapshot replaced, if a crash left them in the log.
fn reconcile(snapshot: &SnapshotMeta, entries: Vec<Entry>) -> Result<Vec<Entry>, OpenError> {
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(entries) };
    if first.index > snapshot.index + 1 {
        return Err(OpenError::Gap { checkpoint: snapshot.index, log: first.index });
    }
    let at_snapshot = entries.iter().find(|entry| entry.index == snapshot.index);
    let replaced = last.index < snapshot.index || at_snapshot.is_some_and(|entry| entry.term != snapshot.term);
    Ok(if replaced { Vec::new() } else { entries })
}
