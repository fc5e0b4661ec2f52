//! The thread that owns the disk: many writes, one sync.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::checkpoint::{self, CheckpointError};
use crate::disk::Disk;
use crate::log::{Log, LogError};
use crate::replica::{Room, Write};

/// The times by which syncs are told apart, in etcd's steps: a millisecond, doubled thirteen times.
pub const SYNC_BUCKETS_MICROS: [u64; 14] = {
    let mut bounds = [1000; 14];
    let mut at = 1;
    while at < bounds.len() {
        bounds[at] = bounds[at - 1] * 2;
        at += 1;
    }
    bounds
};

/// What the disk did since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DiskStats {
    /// How many syncs.
    pub syncs: u64,
    /// How long they took together.
    pub sync_micros: u64,
    /// How long the slowest took.
    pub slowest_micros: u64,
    /// How many took at most as long as each of [`SYNC_BUCKETS_MICROS`] and longer than the one before.
    pub buckets: [u64; SYNC_BUCKETS_MICROS.len()],
    /// Bytes of log segments.
    pub log_bytes: u64,
}

/// What the thread is told.
pub(super) enum Job {
    /// To make durable, in order.
    Write(Box<Write>),
    /// A checkpoint at this index is durable.
    Release(u64),
    /// To see whether there is room again.
    Probe,
}

/// What the thread says. There is one for every group of jobs at most, so the bound on jobs bounds these.
pub(super) enum Event {
    /// Everything up to this number is durable.
    Persisted(u64, DiskStats),
    /// How much room there is now.
    Room(Room),
    /// The disk failed.
    Failed(WriterError),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum WriterError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

/// Jobs that wait; beyond that the task waits.
pub(super) const JOBS_MAX: usize = 1024;
/// Bytes after which a group is written though more waits.
const GROUP_BYTES_MAX: usize = 8 << 20;
const FULL_RETRY: Duration = Duration::from_secs(1);
/// A sync that takes longer is reported.
const SLOW: Duration = Duration::from_secs(1);

struct Writer<D: Disk> {
    log: Log<D>,
    events: mpsc::UnboundedSender<Event>,
    stats: DiskStats,
    room: Room,
}

/// Runs until the task is gone and everything is written.
pub(super) fn run<D: Disk>(log: Log<D>, mut jobs: mpsc::Receiver<Job>, events: mpsc::UnboundedSender<Event>) {
    let mut writer = Writer { log, events, stats: DiskStats::default(), room: Room::Ample };
    writer.tell_room();
    while let Some(job) = jobs.blocking_recv() {
        if let Err(error) = writer.group(job, &mut jobs) {
            let _ = writer.events.send(Event::Failed(error));
            return;
        }
    }
}

impl<D: Disk> Writer<D> {
    /// Takes what waits, writes it in one go, syncs once.
    fn group(&mut self, first: Job, jobs: &mut mpsc::Receiver<Job>) -> Result<(), WriterError> {
        let mut durable = None;
        let mut needs_sync = false;
        let mut next = Some(first);
        while let Some(job) = next {
            match job {
                Job::Release(index) => self.log.release(index)?,
                Job::Probe => self.log.replenish()?,
                Job::Write(write) => {
                    needs_sync |= write.persist.sync;
                    if write.persist.sync {
                        durable = Some(write.persist.number);
                    }
                    self.stage(&write)?;
                }
            }
            next = if self.log.staged_bytes() < GROUP_BYTES_MAX { jobs.try_recv().ok() } else { None };
        }
        // A commit index alone waits for company.
        if needs_sync {
            self.flush()?;
        }
        if let Some(number) = durable {
            let _ = self.events.send(Event::Persisted(number, self.stats));
        }
        self.tell_room();
        Ok(())
    }

    fn tell_room(&mut self) {
        self.set_room(if self.log.is_low() { Room::Low } else { Room::Ample });
    }

    fn set_room(&mut self, room: Room) {
        if self.room == room {
            return;
        }
        self.room = room;
        match room {
            Room::Ample => tracing::info!("the disk of the log has room again"),
            Room::Low => {
                tracing::error!(
                    "the disk of the log is full: this member takes nothing that grows until there is room on it"
                );
            }
            Room::None => tracing::error!("the disk of the log is full to the last: this member waits for room on it"),
        }
        let _ = self.events.send(Event::Room(room));
    }

    fn stage(&mut self, write: &Write) -> Result<(), WriterError> {
        if let (Some(meta), Some(state)) = (&write.persist.install, &write.installed) {
            self.flush()?;
            self.insist(|writer| match checkpoint::write(writer.log.disk(), meta, state) {
                Err(CheckpointError::Full(_)) => Ok(false),
                other => other.map(|()| true).map_err(WriterError::from),
            })?;
            self.log.stage_reset(meta.index);
        }
        if let Some(state) = write.persist.hard_state {
            self.log.stage_hard_state(state);
        }
        self.log.stage_entries(&write.persist.entries);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), WriterError> {
        if self.log.staged_bytes() == 0 {
            return Ok(());
        }
        self.insist(|writer| match writer.log.write() {
            Err(LogError::Full(_)) => Ok(false),
            other => other.map(|()| true).map_err(WriterError::from),
        })?;
        let began = Instant::now();
        self.log.sync()?;
        let took = began.elapsed();
        if took > SLOW {
            tracing::warn!(milliseconds = took.as_millis(), "the disk of the log is slow: a sync took long");
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.stats.syncs += 1;
        self.stats.sync_micros += micros;
        if let Some(at) = SYNC_BUCKETS_MICROS.iter().position(|bound| micros <= *bound) {
            self.stats.buckets[at] += 1;
        }
        self.stats.slowest_micros = self.stats.slowest_micros.max(micros);
        self.stats.log_bytes = self.log.disk_bytes();
        Ok(())
    }

    /// Tries until there is space: what consensus has decided to write cannot be taken back.
    fn insist(&mut self, mut attempt: impl FnMut(&mut Self) -> Result<bool, WriterError>) -> Result<(), WriterError> {
        while !attempt(self)? {
            self.set_room(Room::None);
            if self.events.is_closed() {
                return Ok(());
            }
            std::thread::sleep(FULL_RETRY);
        }
        Ok(())
    }
}
