//! Simulated member: the real replica and log, driven like by the node's task and disk thread.

use std::collections::VecDeque;

use consensus::{Config, Group, Peer};
use store::checkpoint::CheckpointError;
use store::log::{self, Log, LogError};
use store::open::{self, OpenError};
use store::replica::{FreeSpace, Options, Replica, Step, Write};

use crate::Bugs;
use crate::disk::SimDisk;

/// A member that may be down.
pub(crate) struct Host {
    pub id: u64,
    pub disk: SimDisk,
    pub live: Option<Live>,
    /// Number of starts, to discard events of an earlier life.
    pub life: u64,
    /// Offset of the member's clock from the virtual time: nothing may depend on it.
    pub clock_offset_ms: u64,
    /// End of a pause of the process.
    pub paused_until: u64,
    /// Duration of a sync.
    pub sync_ms: u64,
    /// Whether the cluster has removed the member, which may still be up and not know it.
    pub leaving: bool,
    /// Whether the member was removed and shut down permanently.
    pub retired: bool,
}

/// A member that is up.
pub(crate) struct Live {
    pub replica: Replica,
    log: Log<SimDisk>,
    queue: VecDeque<Write>,
    /// The write number that becomes durable with the group being written.
    staged: Option<u64>,
    /// The write number that becomes durable with the group being synced.
    syncing: Option<Option<u64>>,
}

/// The reason that a member went down.
pub(crate) enum Down {
    Power,
    /// The disk has no space for a start.
    Full,
    /// The member failed permanently, which fails the run.
    Fault(String),
}

const SEGMENT_BYTES: u64 = 8 << 10;
/// Small, so that compactions are always in progress.
const PRUNED_CHANGES_MAX: usize = 1;
const CHECKPOINT_BYTES: u64 = 6 << 10;
pub(crate) const CLUSTER: u64 = 7;
pub(crate) const ELECTION_TICKS: usize = 10;
pub(crate) const TICK_MS: u64 = 100;

impl Host {
    pub(crate) fn new(id: u64, peers: u64, clock_offset_ms: u64) -> Self {
        let host = Self::joining(id, clock_offset_ms);
        open::bootstrap(&host.disk, Group::new((1..=peers).map(Self::peer))).expect("a new disk takes a checkpoint");
        host
    }

    /// Returns a member that was added to an existing cluster and needs a snapshot.
    pub(crate) fn joining(id: u64, clock_offset_ms: u64) -> Self {
        let disk = SimDisk::default();
        let (leaving, retired) = (false, false);
        Self { id, disk, live: None, life: 0, clock_offset_ms, paused_until: 0, sync_ms: 2, leaving, retired }
    }

    /// Returns the membership entry of a member.
    pub(crate) fn peer(id: u64) -> Peer {
        let peer_urls = vec![format!("http://m{id}:2380")];
        Peer { id, name: format!("m{id}"), peer_urls, client_urls: vec![], learner: false }
    }

    /// Starts from the content of the disk.
    pub(crate) fn start(&mut self, seed: u64) -> Result<(), Down> {
        self.life += 1;
        let config = log::Config { identity: (CLUSTER, self.id), segment_bytes: SEGMENT_BYTES };
        let opened = open::open(self.disk.clone(), config).map_err(|error| match error {
            OpenError::Log(LogError::Full(_)) => Down::Full,
            error => self.down(&error.to_string()),
        })?;
        let member = Config {
            id: self.id,
            heartbeat_ticks: 1,
            election_ticks: ELECTION_TICKS,
            seed,
            boot: opened.boot,
            message_bytes_max: 4 << 10,
            uncommitted_bytes_max: 1 << 20,
        };
        let options = Options {
            lease_extension_ms: ELECTION_TICKS as u64 * TICK_MS,
            memory_log_bytes: 1 << 10,
            memory_log_bytes_max: 4 << 10,
        };
        let replica = Replica::new(member, opened.recovered, opened.state, options);
        self.live = Some(Live { replica, log: opened.log, queue: VecDeque::new(), staged: None, syncing: None });
        self.set_free_space(None);
        Ok(())
    }

    /// Executes the next step of the replica and queues its write.
    pub(crate) fn step(&mut self, now_ms: u64) -> Result<Option<Step>, Down> {
        let now_ms = now_ms + self.clock_offset_ms;
        let Some(live) = &mut self.live else { return Ok(None) };
        let step = live.replica.step(now_ms).map_err(|error| Down::Fault(error.to_string()))?;
        live.replica.prune(PRUNED_CHANGES_MAX);
        let Some(mut step) = step else { return Ok(None) };
        live.queue.extend(step.write.take());
        Ok(Some(step))
    }

    /// Writes the queue unless a sync is in progress. Returns whether a sync was started.
    pub(crate) fn start_sync(&mut self, bugs: Bugs) -> Result<bool, Down> {
        let Some(live) = &mut self.live else { return Ok(false) };
        let waits = live.staged.is_some() || live.queue.iter().any(|write| write.persist.sync);
        if live.syncing.is_some() || !waits {
            return Ok(false);
        }
        let result = live.write_group(&self.disk, bugs);
        let written = result.map_err(|error| self.down(&error))?;
        self.set_free_space((!written).then_some(FreeSpace::None));
        Ok(written)
    }

    /// Checks for space on a disk that was full.
    pub(crate) fn probe(&mut self) -> Result<(), Down> {
        let Some(live) = &mut self.live else { return Ok(()) };
        let result = live.log.replenish();
        result.map_err(|error| self.down(&error.to_string()))?;
        if live_free_space(self.live.as_ref()) != FreeSpace::None {
            self.set_free_space(None);
        }
        Ok(())
    }

    /// Returns the space available to the log.
    pub(crate) fn free_space(&self) -> FreeSpace {
        live_free_space(self.live.as_ref())
    }

    /// Reports the available space to the replica: `free_space`, or that of the log.
    fn set_free_space(&mut self, free_space: Option<FreeSpace>) {
        let Some(live) = &mut self.live else { return };
        let free_space = free_space.unwrap_or(if live.log.is_low() { FreeSpace::Low } else { FreeSpace::Ample });
        if live.replica.free_space() != free_space {
            live.replica.set_free_space(free_space);
        }
    }

    /// Completes the sync.
    pub(crate) fn end_sync(&mut self) -> Result<(), Down> {
        let Some(live) = &mut self.live else { return Ok(()) };
        let number = live.syncing.take().flatten();
        let result = live.log.sync();
        result.map_err(|error| self.down(&error.to_string()))?;
        if let (Some(live), Some(number)) = (&mut self.live, number) {
            live.replica.persisted(number);
        }
        Ok(())
    }

    /// Writes a checkpoint if the log has grown enough.
    pub(crate) fn checkpoint(&mut self) -> Result<(), Down> {
        let Some(live) = &mut self.live else { return Ok(()) };
        if live.replica.log_bytes() < CHECKPOINT_BYTES {
            return Ok(());
        }
        let (meta, state) = live.replica.checkpoint();
        let released = match store::checkpoint::write(&self.disk, &meta, &state) {
            // The previous checkpoint and the log are intact.
            Err(CheckpointError::Full(_)) => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(()) => live.log.release(meta.index).map_err(|error| error.to_string()),
        };
        released.map_err(|error| self.down(&error))
    }

    fn down(&self, error: &str) -> Down {
        if self.disk.is_dead() { Down::Power } else { Down::Fault(error.to_owned()) }
    }
}

fn live_free_space(live: Option<&Live>) -> FreeSpace {
    live.map_or(FreeSpace::Ample, |live| live.replica.free_space())
}

impl Live {
    /// Writes the queue. Returns false if there is no space and the write must be retried.
    fn write_group(&mut self, disk: &SimDisk, bugs: Bugs) -> Result<bool, String> {
        while let Some(write) = self.queue.front() {
            if let (Some(meta), Some(state)) = (&write.persist.install, &write.installed) {
                match store::checkpoint::write(disk, meta, state) {
                    Err(CheckpointError::Full(_)) => return Ok(false),
                    written => written.map_err(|error| error.to_string())?,
                }
                self.log.stage_reset(meta.index);
            }
            if let Some(state) = write.persist.hard_state {
                self.log.stage_hard_state(state);
            }
            self.log.stage_entries(&write.persist.entries);
            if write.persist.sync {
                self.staged = Some(write.persist.number);
            }
            self.queue.pop_front();
        }
        match self.log.write() {
            Err(LogError::Full(_)) => return Ok(false),
            written => written.map_err(|error| error.to_string())?,
        }
        let number = self.staged.take();
        self.syncing = Some(number);
        if let (true, Some(number)) = (bugs.acknowledge_before_sync, number) {
            self.replica.persisted(number);
        }
        Ok(true)
    }
}
