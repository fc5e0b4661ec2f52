//! Write-ahead log: segments of checksummed records, with one sync per group of records.
//!
//! A member creates a new segment at every start, so a torn tail is never written again: the next segment records where
//! the previous one ends. Segments whose entries are covered by a checkpoint are removed, oldest first.
//!
//! A small reserve file is preallocated. If the disk has no space for the next segment, the reserve becomes that
//! segment. This leaves space to raise an alarm and to free space (deletions, compaction), while growing writes are
//! rejected.

pub(crate) mod fuzz;
mod record;
mod recover;
#[cfg(test)]
mod tests;
mod window;

use std::io;

use bytes::BytesMut;
use consensus::{Entry, HardState};
use record::{Record, Start};

use crate::disk::{Disk, DiskFile};
use crate::value_file::ValueFile;

#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Cluster ID and member ID: a directory of another member is rejected.
    pub identity: (u64, u64),
    /// Maximum segment size, preallocated.
    pub segment_bytes: u64,
}

/// The content of a log when it was opened.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Contents {
    /// Entries without gaps.
    pub entries: Vec<Entry>,
    pub hard_state: HardState,
    /// The number of this start of the member, from 1.
    pub boot: u64,
    /// Bytes removed from a torn tail.
    pub torn_bytes: u64,
}

/// The log is unusable.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk is full; nothing was lost, and the same call can be retried.
    #[error("no space left on the disk of the log")]
    Full(#[source] io::Error),
    #[error("the log could not {what}")]
    Disk {
        /// The operation that failed.
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// A record that was once durable is damaged.
    #[error(
        "the log is damaged in {segment} at byte {offset}: {what}. Acknowledged writes may be missing on this disk. In a cluster, remove this \
         member, empty its data directory and add it again; a single member is restored from a snapshot (knarr store snapshot restore)"
    )]
    Damaged {
        /// The file name of the segment.
        segment: String,
        offset: u64,
        what: &'static str,
    },
    /// The directory belongs to another member.
    #[error(
        "the log belongs to member {found_member:x} of cluster {found_cluster:x}, not to member {member:x} of cluster {cluster:x}: \
         point --data-dir to this member's own directory"
    )]
    Foreign {
        /// The expected cluster and member.
        cluster: u64,
        member: u64,
        found_cluster: u64,
        found_member: u64,
    },
}

/// The content of a log that was read for inspection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Inspection {
    /// Cluster ID and member ID.
    pub identity: (u64, u64),
    pub contents: Contents,
}

/// Returns the cluster ID and member ID of the log in a directory; none if there is no log.
pub fn identity<D: Disk>(disk: &D) -> Result<Option<(u64, u64)>, LogError> {
    recover::identity(disk)
}

/// Reads the log of a directory; none if there is no log. The only change is the removal of an unfinished segment.
pub fn inspect<D: Disk>(disk: &D) -> Result<Option<Inspection>, LogError> {
    let Some(identity) = identity(disk)? else { return Ok(None) };
    Ok(Some(Inspection { identity, contents: recover::recover(disk, identity, &ValueFile::memory())?.contents }))
}

pub struct Log<D: Disk> {
    disk: D,
    config: Config,
    boot: u64,
    hard_state: HardState,
    active: Segment<D::File>,
    /// Earlier segments, oldest first, each with its newest index.
    closed: Vec<(u32, u64)>,
    staged: BytesMut,
    /// The newest index that is staged and not written yet.
    staged_index: u64,
    reserve: Reserve,
}

/// State of the reserve file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reserve {
    Ready,
    /// The reserve became a segment because there was no space for another.
    Used,
    /// The reserve does not exist yet, or only in part.
    Missing,
}

struct Segment<F> {
    sequence: u32,
    file: F,
    /// Allocated bytes.
    capacity: u64,
    end: u64,
    /// End of the blocks that have been written before.
    zeroed: u64,
    group: u64,
    newest_index: u64,
}

/// Zeros are written ahead of the groups in pieces of this size. A write to blocks that are only allocated changes the
/// file's metadata, so its sync costs a second disk write.
const ZEROED_BYTES: usize = 1 << 20;
/// Temporary name of a new segment.
const UNFINISHED: &str = "segment.tmp";
const RESERVE: &str = "reserve";
/// A quarter of a segment, at most 16 MiB: space for two groups of 8 MiB that were in progress when the disk became
/// full, and then for thousands of deletions.
const RESERVE_BYTES_MAX: u64 = 16 << 20;
const RESERVE_FRACTION: u64 = 4;

impl<D: Disk> Log<D> {
    /// Opens and reads the log of a directory, truncates a torn tail, and creates a new segment.
    pub fn open(disk: D, config: Config) -> Result<(Self, Contents), LogError> {
        Self::open_to(disk, config, &ValueFile::memory())
    }

    /// Like [`Log::open`], but stores the commands in `value_file`.
    pub fn open_to(disk: D, config: Config, value_file: &ValueFile) -> Result<(Self, Contents), LogError> {
        let recovered = recover::recover(&disk, config.identity, value_file)?;
        let boot = recovered.contents.boot + 1;
        let hard_state = recovered.contents.hard_state;
        let sequence = recovered.segments.last().map_or(1, |(sequence, _)| sequence + 1);
        let start = Start { identity: config.identity, boot, hard_state, previous_end: recovered.end };
        // Done before the next segment is created, because on a full disk this may be the only space. The truncated
        // part was never acknowledged.
        if let Some((last, _)) = recovered.segments.last() {
            trim_segment(&disk, *last, recovered.end);
        }
        let mut reserve = find_reserve(&disk, config)?;
        let active = start_somehow(&disk, config, sequence, start, &mut reserve)?;
        let contents = Contents { boot, ..recovered.contents };
        let closed = recovered.segments;
        let staged = BytesMut::new();
        let mut log = Self { disk, config, boot, hard_state, active, closed, staged, staged_index: 0, reserve };
        if log.reserve == Reserve::Missing {
            log.put_by(0)?;
        }
        Ok((log, contents))
    }

    /// Adds entries to the next group.
    pub fn stage_entries(&mut self, entries: &[Entry]) {
        for entry in entries {
            record::stage(&mut self.staged, &Record::Entry(entry.clone()));
            self.staged_index = self.staged_index.max(entry.index);
        }
    }

    /// Adds a hard state to the next group.
    pub fn stage_hard_state(&mut self, state: HardState) {
        self.hard_state = state;
        record::stage(&mut self.staged, &Record::HardState(state));
    }

    /// Adds a reset to the next group: a durable checkpoint replaced the log up to `index`.
    pub fn stage_reset(&mut self, index: u64) {
        record::stage(&mut self.staged, &Record::Reset { index });
    }

    /// Returns the size of the next group.
    pub fn staged_bytes(&self) -> usize {
        self.staged.len()
    }

    /// Writes the staged group and keeps it staged until [`Log::sync`], so that a write to a full disk can be retried.
    pub fn write(&mut self) -> Result<(), LogError> {
        if self.staged.is_empty() {
            return Ok(());
        }
        if self.active.group > 0 && self.active.end + self.staged.len() as u64 > self.active.capacity {
            self.rotate()?;
        }
        record::finish_group(&mut self.staged, self.active.sequence, self.active.group + 1);
        let end = self.active.end;
        self.active.file.write_at(end, &self.staged).map_err(|source| classify("write a group", source))?;
        self.zero_ahead(end + self.staged.len() as u64)
    }

    fn zero_ahead(&mut self, end: u64) -> Result<(), LogError> {
        if end <= self.active.zeroed {
            return Ok(());
        }
        let remaining = usize::try_from(self.active.capacity.saturating_sub(end)).unwrap_or(usize::MAX);
        let zeros = vec![0; remaining.min(ZEROED_BYTES)];
        self.active.file.write_at(end, &zeros).map_err(|source| classify("make room for groups", source))?;
        self.active.zeroed = end + zeros.len() as u64;
        Ok(())
    }

    /// Makes the written group durable. Must not be retried after an error, because the disk content is then unknown.
    pub fn sync(&mut self) -> Result<(), LogError> {
        if self.staged.is_empty() {
            return Ok(());
        }
        self.active.file.sync().map_err(|source| LogError::Disk { what: "sync a group", source })?;
        self.active.end += self.staged.len() as u64;
        self.active.group += 1;
        self.active.newest_index = self.active.newest_index.max(self.staged_index);
        self.staged_index = 0;
        self.staged.clear();
        Ok(())
    }

    /// Removes the segments that a durable checkpoint at this index covers.
    pub fn release(&mut self, checkpoint_index: u64) -> Result<(), LogError> {
        let needless = self.closed.iter().take_while(|(_, newest)| *newest <= checkpoint_index).count();
        for (sequence, _) in self.closed.drain(..needless) {
            // Each removal is synced: a later segment missing before an earlier one would look like damage.
            let removed = self.disk.remove(&segment_name(sequence)).and_then(|()| self.disk.sync());
            removed.map_err(|source| LogError::Disk { what: "remove a segment", source })?;
        }
        Ok(())
    }

    /// Whether the reserve is in use because the disk had no space for a segment.
    pub fn is_low(&self) -> bool {
        self.reserve == Reserve::Used
    }

    /// Creates a new reserve after the old one was used, if there is space for it and for the next segment. Otherwise
    /// it would be used immediately.
    pub fn replenish(&mut self) -> Result<(), LogError> {
        if self.is_low() { self.put_by(self.config.segment_bytes) } else { Ok(()) }
    }

    /// Creates the reserve if `beside` bytes remain free in addition.
    fn put_by(&mut self, beside: u64) -> Result<(), LogError> {
        let reserve_bytes = reserve_bytes(self.config);
        let reserved = || {
            create(&self.disk, UNFINISHED, reserve_bytes + beside)?;
            self.disk.remove(UNFINISHED)?;
            create(&self.disk, RESERVE, reserve_bytes)?.sync()?;
            self.disk.sync()
        };
        match reserved().map_err(|source| classify("put a reserve by", source)) {
            Ok(()) => self.reserve = Reserve::Ready,
            Err(LogError::Full(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Returns the approximate size of all segments.
    pub fn disk_bytes(&self) -> u64 {
        (self.closed.len() as u64 + 1) * self.config.segment_bytes
    }

    fn rotate(&mut self) -> Result<(), LogError> {
        let start = Start {
            identity: self.config.identity,
            boot: self.boot,
            hard_state: self.hard_state,
            previous_end: self.active.end,
        };
        let sequence = self.active.sequence + 1;
        let next = start_somehow(&self.disk, self.config, sequence, start, &mut self.reserve)?;
        let old = std::mem::replace(&mut self.active, next);
        self.closed.push((old.sequence, old.newest_index));
        Ok(())
    }
}

/// Creates a segment, from the reserve if there is no other space.
fn start_somehow<D: Disk>(
    disk: &D,
    config: Config,
    sequence: u32,
    start: Start,
    reserve: &mut Reserve,
) -> Result<Segment<D::File>, LogError> {
    let what = "start a segment";
    let created = create(disk, UNFINISHED, config.segment_bytes).map_err(|source| classify(what, source));
    match created.and_then(|file| start_segment(disk, (UNFINISHED, file, config.segment_bytes), sequence, start)) {
        Err(LogError::Full(_)) if *reserve == Reserve::Ready => {
            let file = disk.open(RESERVE).map_err(|source| LogError::Disk { what, source })?;
            let segment = start_segment(disk, (RESERVE, file, reserve_bytes(config)), sequence, start)?;
            *reserve = Reserve::Used;
            Ok(segment)
        }
        started => started,
    }
}

/// Creates a segment, which gets its name only after its first record is durable. A segment that exists is readable.
fn start_segment<D: Disk>(
    disk: &D,
    (name, mut file, capacity): (&str, D::File, u64),
    sequence: u32,
    start: Start,
) -> Result<Segment<D::File>, LogError> {
    let what = "start a segment";
    let mut staged = BytesMut::new();
    record::stage(&mut staged, &Record::Start(start));
    record::finish_group(&mut staged, sequence, 0);
    file.write_at(0, &staged).map_err(|source| classify(what, source))?;
    file.sync().map_err(|source| classify(what, source))?;
    disk.rename(name, &segment_name(sequence)).map_err(|source| classify(what, source))?;
    disk.sync().map_err(|source| LogError::Disk { what, source })?;
    let end = staged.len() as u64;
    Ok(Segment { sequence, file, capacity, end, zeroed: end, group: 0, newest_index: 0 })
}

/// Creates a file, or removes the partial file of a full disk, because others need the space.
fn create<D: Disk>(disk: &D, name: &str, bytes: u64) -> io::Result<D::File> {
    disk.create(name, bytes).inspect_err(|_| {
        // The file may not exist.
        let _ = disk.remove(name);
    })
}

fn reserve_bytes(config: Config) -> u64 {
    RESERVE_BYTES_MAX.min(config.segment_bytes / RESERVE_FRACTION)
}

fn find_reserve<D: Disk>(disk: &D, config: Config) -> Result<Reserve, LogError> {
    let failed = |source| LogError::Disk { what: "check its reserve", source };
    let is_there = disk.list().map_err(failed)?.iter().any(|name| name == RESERVE);
    let bytes = if is_there { disk.open(RESERVE).and_then(|file| file.len()).map_err(failed)? } else { 0 };
    // A crash may have left a partial reserve.
    Ok(if bytes >= reserve_bytes(config) { Reserve::Ready } else { Reserve::Missing })
}

/// Frees the unused space of a segment: a member that is started often would otherwise fill its disk.
fn trim_segment<D: Disk>(disk: &D, sequence: u32, end: u64) {
    let cut = disk.open(&segment_name(sequence)).and_then(|mut file| file.cut(end));
    if let Err(error) = cut {
        tracing::warn!(%error, segment = segment_name(sequence), "failed to truncate the unused end of a segment");
    }
}

fn segment_name(sequence: u32) -> String {
    format!("{sequence:08x}.log")
}

fn segment_sequence(name: &str) -> Option<u32> {
    u32::from_str_radix(name.strip_suffix(".log")?, 16).ok()
}

fn classify(what: &'static str, source: io::Error) -> LogError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => LogError::Full(source),
        _ => LogError::Disk { what, source },
    }
}
