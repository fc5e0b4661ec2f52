//! The thread that owns the disk and syncs many writes together.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::checkpoint::{self, CheckpointError};
use crate::disk::Disk;
use crate::log::{Log, LogError};
use crate::replica::{FreeSpace, Write};

/// Upper bounds of the sync histogram, as in etcd: 1 ms, doubled thirteen times.
pub const SYNC_BUCKETS_MICROS: [u64; 14] = {
    let mut bounds = [1000; 14];
    let mut at = 1;
    while at < bounds.len() {
        bounds[at] = bounds[at - 1] * 2;
        at += 1;
    }
    bounds
};

/// Disk statistics since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DiskStats {
    pub syncs: u64,
    /// Total duration.
    pub sync_micros: u64,
    /// Maximum duration.
    pub slowest_micros: u64,
    /// Non-cumulative counts for [`SYNC_BUCKETS_MICROS`].
    pub buckets: [u64; SYNC_BUCKETS_MICROS.len()],
    /// Size of the log segments.
    pub log_bytes: u64,
}

/// A request to the thread.
pub(super) enum Job {
    /// Makes a write durable, in order.
    Write(Box<Write>),
    /// Removes the segments that a durable checkpoint at this index covers.
    Release(u64),
    /// Checks whether space is available again.
    Probe,
}

/// A report of the thread. A group of jobs sends only a few, so the bound on jobs bounds the reports.
pub(super) enum Event {
    /// Everything up to this write number is durable.
    Persisted(u64, DiskStats),
    FreeSpace(FreeSpace),
    Failed(WriterError),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum WriterError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

/// Queue size of jobs; the task waits if it is full.
pub(super) const JOBS_MAX: usize = 1024;
/// Size at which a group is written even if more jobs are queued.
const GROUP_BYTES_MAX: usize = 8 << 20;
const FULL_RETRY: Duration = Duration::from_secs(1);
/// Syncs that take longer are logged.
const SLOW: Duration = Duration::from_secs(1);

struct Writer<D: Disk> {
    log: Log<D>,
    events: mpsc::UnboundedSender<Event>,
    stats: DiskStats,
    free_space: FreeSpace,
}

/// Runs until the task has exited and everything is written.
pub(super) fn run<D: Disk>(log: Log<D>, mut jobs: mpsc::Receiver<Job>, events: mpsc::UnboundedSender<Event>) {
    let mut writer = Writer { log, events, stats: DiskStats::default(), free_space: FreeSpace::Ample };
    writer.update_free_space();
    while let Some(job) = jobs.blocking_recv() {
        if let Err(error) = writer.group(job, &mut jobs) {
            let _ = writer.events.send(Event::Failed(error));
            return;
        }
    }
}

impl<D: Disk> Writer<D> {
    /// Takes all queued jobs, writes them together and syncs once.
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
        // A hard state with only a new commit index is synced with a later write.
        if needs_sync {
            self.flush()?;
        }
        if let Some(number) = durable {
            let _ = self.events.send(Event::Persisted(number, self.stats));
        }
        self.update_free_space();
        Ok(())
    }

    fn update_free_space(&mut self) {
        self.set_free_space(if self.log.is_low() { FreeSpace::Low } else { FreeSpace::Ample });
    }

    fn set_free_space(&mut self, free_space: FreeSpace) {
        if self.free_space == free_space {
            return;
        }
        self.free_space = free_space;
        match free_space {
            FreeSpace::Ample => tracing::info!("the log disk has free space again"),
            FreeSpace::Low => {
                tracing::error!("the log disk is full; rejecting writes that grow the store until space is available");
            }
            FreeSpace::None => tracing::error!("the log disk and its reserve are full; waiting for free space"),
        }
        let _ = self.events.send(Event::FreeSpace(free_space));
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
            tracing::warn!(milliseconds = took.as_millis(), "a sync of the log took too long; the disk is slow");
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

    /// Retries until there is space: writes that consensus has decided cannot be undone.
    fn insist(&mut self, mut attempt: impl FnMut(&mut Self) -> Result<bool, WriterError>) -> Result<(), WriterError> {
        while !attempt(self)? {
            self.set_free_space(FreeSpace::None);
            if self.events.is_closed() {
                return Ok(());
            }
            std::thread::sleep(FULL_RETRY);
        }
        Ok(())
    }
}
