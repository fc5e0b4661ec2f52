//! The write-ahead log: segments of checksummed records, one sync for a whole group of them.
//!
//! A member starts a new segment whenever it starts, so a tail that a crash tore is never written to again: the next segment says
//! where the torn one ends. Segments whose entries a checkpoint covers are removed, oldest first.
//!
//! A small file is kept in reserve. When the disk has no room for the next segment, it becomes that segment: so there is room to tell
//! the other members of it, and for what makes room (deletions, compaction), while everything that grows the store is refused.

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
use crate::shelf::Shelf;

/// How a log is kept; given at start.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Cluster and member: a directory of another one is refused.
    pub identity: (u64, u64),
    /// Bytes after which a segment ends; allocated when it starts.
    pub segment_bytes: u64,
}

/// What a log held when it was opened.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Contents {
    /// The entries, without a gap.
    pub entries: Vec<Entry>,
    /// The last hard state.
    pub hard_state: HardState,
    /// Which start of the member this is, from 1.
    pub boot: u64,
    /// Bytes that a crash had torn off the end.
    pub torn_bytes: u64,
}

/// Why the log cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk is full; nothing was lost, and the same call may be made again.
    #[error("no space left on the disk of the log")]
    Full(#[source] io::Error),
    /// The disk failed.
    #[error("the log could not {what}")]
    Disk {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A record that was once whole is not anymore.
    #[error(
        "the log is damaged in {segment} at byte {offset}: {what}. Acknowledged writes may be gone from this disk. In a cluster, remove this \
         member, empty its data directory and add it again; a single member is restored from a snapshot (knarr store snapshot restore)"
    )]
    Damaged {
        /// The file.
        segment: String,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The directory belongs to somebody else.
    #[error(
        "the log belongs to member {found_member:x} of cluster {found_cluster:x}, not to member {member:x} of cluster {cluster:x}: \
         point --data-dir to this member's own directory"
    )]
    Foreign {
        /// Whose directory was expected.
        cluster: u64,
        /// Whose directory was expected.
        member: u64,
        /// Whose it is.
        found_cluster: u64,
        /// Whose it is.
        found_member: u64,
    },
}

/// A log that was looked at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Inspected {
    /// Whose it is: cluster and member.
    pub identity: (u64, u64),
    /// What it holds.
    pub contents: Contents,
}

/// Whose log a directory holds, cluster and member; none if there is no log.
pub fn identity<D: Disk>(disk: &D) -> Result<Option<(u64, u64)>, LogError> {
    recover::identity(disk)
}

/// Reads the log of a directory without touching it; none if there is no log.
pub fn inspect<D: Disk>(disk: &D) -> Result<Option<Inspected>, LogError> {
    let Some(identity) = identity(disk)? else { return Ok(None) };
    Ok(Some(Inspected { identity, contents: recover::recover(disk, identity, &Shelf::memory())?.contents }))
}

/// An open log.
pub struct Log<D: Disk> {
    disk: D,
    config: Config,
    boot: u64,
    hard_state: HardState,
    active: Segment<D::File>,
    /// Those before, oldest first, with the newest index in each.
    closed: Vec<(u32, u64)>,
    staged: BytesMut,
    /// The newest index staged but not yet written.
    staged_index: u64,
    reserve: Reserve,
}

/// What became of the reserve.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reserve {
    /// It is there.
    Ready,
    /// It is a segment by now, because there was no room for another.
    Used,
    /// There never was room for it.
    Missing,
}

struct Segment<F> {
    sequence: u32,
    file: F,
    /// The bytes it was given.
    room: u64,
    end: u64,
    /// Up to here the file has blocks that were written before.
    zeroed: u64,
    group: u64,
    newest_index: u64,
}

/// Zeros are written ahead of the groups in pieces of this size. A write to blocks that were only allocated changes the file's
/// metadata, and its sync then costs a second write to the disk.
const ZEROED_BYTES: usize = 1 << 20;
/// The name under which a segment is made ready.
const UNFINISHED: &str = "segment.tmp";
/// The name of the reserve.
const RESERVE: &str = "reserve";
/// A quarter of a segment, at most 16 MiB: what was on its way when room ran out, two groups of 8 MiB, and then thousands of deletions.
const RESERVE_BYTES_MAX: u64 = 16 << 20;
const RESERVE_PART: u64 = 4;

impl<D: Disk> Log<D> {
    /// Opens the log of a directory, reads it, cuts off what a crash tore, and starts a new segment.
    pub fn open(disk: D, config: Config) -> Result<(Self, Contents), LogError> {
        Self::open_to(disk, config, &Shelf::memory())
    }

    /// The same; the commands that were read are put on a shelf.
    pub fn open_to(disk: D, config: Config, shelf: &Shelf) -> Result<(Self, Contents), LogError> {
        let recovered = recover::recover(&disk, config.identity, shelf)?;
        let boot = recovered.contents.boot + 1;
        let hard_state = recovered.contents.hard_state;
        let sequence = recovered.segments.last().map_or(1, |(sequence, _)| sequence + 1);
        let start = Start { identity: config.identity, boot, hard_state, previous_end: recovered.end };
        // Before the next one starts: on a full disk that may be the only room there is. What is cut off was never acknowledged.
        if let Some((last, _)) = recovered.segments.last() {
            give_back(&disk, *last, recovered.end);
        }
        let mut reserve = look_for_reserve(&disk, config)?;
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

    /// Adds to the next group that a durable checkpoint took the place of the log up to an index.
    pub fn stage_reset(&mut self, index: u64) {
        record::stage(&mut self.staged, &Record::Reset { index });
    }

    /// Bytes of the next group.
    pub fn staged_bytes(&self) -> usize {
        self.staged.len()
    }

    /// Writes the staged group and keeps it staged until [`Log::sync`], so that a full disk can be tried again.
    pub fn write(&mut self) -> Result<(), LogError> {
        if self.staged.is_empty() {
            return Ok(());
        }
        if self.active.group > 0 && self.active.end + self.staged.len() as u64 > self.active.room {
            self.rotate()?;
        }
        record::seal(&mut self.staged, self.active.sequence, self.active.group + 1);
        let end = self.active.end;
        self.active.file.write_at(end, &self.staged).map_err(|source| classify("write a group", source))?;
        self.zero_ahead(end + self.staged.len() as u64)
    }

    fn zero_ahead(&mut self, end: u64) -> Result<(), LogError> {
        if end <= self.active.zeroed {
            return Ok(());
        }
        let room = usize::try_from(self.active.room.saturating_sub(end)).unwrap_or(usize::MAX);
        let zeros = vec![0; room.min(ZEROED_BYTES)];
        self.active.file.write_at(end, &zeros).map_err(|source| classify("make room for groups", source))?;
        self.active.zeroed = end + zeros.len() as u64;
        Ok(())
    }

    /// Makes the written group durable. It must not be tried again after an error: what the disk then holds is unknown.
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

    /// Removes the segments that a durable checkpoint at this index makes needless.
    pub fn release(&mut self, checkpoint_index: u64) -> Result<(), LogError> {
        let needless = self.closed.iter().take_while(|(_, newest)| *newest <= checkpoint_index).count();
        for (sequence, _) in self.closed.drain(..needless) {
            // Durable one by one: a later segment that is gone before an earlier one would look like damage.
            let removed = self.disk.remove(&segment_name(sequence)).and_then(|()| self.disk.sync());
            removed.map_err(|source| LogError::Disk { what: "remove a segment", source })?;
        }
        Ok(())
    }

    /// Whether the reserve is being used up, because the disk had no room for a segment.
    pub fn is_low(&self) -> bool {
        self.reserve == Reserve::Used
    }

    /// Puts a new reserve by in place of one that was used, if there is room for it and for the next segment: otherwise it would be used
    /// up at once.
    pub fn replenish(&mut self) -> Result<(), LogError> {
        if self.is_low() { self.put_by(self.config.segment_bytes) } else { Ok(()) }
    }

    /// Puts a reserve by if so many bytes are left beside it.
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

    /// The disk under the log.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Bytes of all segments, about.
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

/// Starts a segment, out of the reserve if there is no other room.
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

/// The segment has its name only once its first record is durable: one that is there can be read.
fn start_segment<D: Disk>(
    disk: &D,
    (name, mut file, room): (&str, D::File, u64),
    sequence: u32,
    start: Start,
) -> Result<Segment<D::File>, LogError> {
    let what = "start a segment";
    let mut staged = BytesMut::new();
    record::stage(&mut staged, &Record::Start(start));
    record::seal(&mut staged, sequence, 0);
    file.write_at(0, &staged).map_err(|source| classify(what, source))?;
    file.sync().map_err(|source| classify(what, source))?;
    disk.rename(name, &segment_name(sequence)).map_err(|source| classify(what, source))?;
    disk.sync().map_err(|source| LogError::Disk { what, source })?;
    let end = staged.len() as u64;
    Ok(Segment { sequence, file, room, end, zeroed: end, group: 0, newest_index: 0 })
}

/// Makes a file, or leaves nothing of it: what a full disk gave of it is room that others need.
fn create<D: Disk>(disk: &D, name: &str, bytes: u64) -> io::Result<D::File> {
    disk.create(name, bytes).inspect_err(|_| {
        // It may not have come to be at all.
        let _ = disk.remove(name);
    })
}

fn reserve_bytes(config: Config) -> u64 {
    RESERVE_BYTES_MAX.min(config.segment_bytes / RESERVE_PART)
}

fn look_for_reserve<D: Disk>(disk: &D, config: Config) -> Result<Reserve, LogError> {
    let failed = |source| LogError::Disk { what: "look for its reserve", source };
    let is_there = disk.list().map_err(failed)?.iter().any(|name| name == RESERVE);
    let bytes = if is_there { disk.open(RESERVE).and_then(|file| file.len()).map_err(failed)? } else { 0 };
    // A crash may have left less than a whole one.
    Ok(if bytes >= reserve_bytes(config) { Reserve::Ready } else { Reserve::Missing })
}

/// Frees the room that a segment was given and never used: a member that is started often would fill its disk with it.
fn give_back<D: Disk>(disk: &D, sequence: u32, end: u64) {
    let cut = disk.open(&segment_name(sequence)).and_then(|mut file| file.cut(end));
    if let Err(error) = cut {
        tracing::warn!(%error, segment = segment_name(sequence), "the unused end of a segment stays allocated");
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
