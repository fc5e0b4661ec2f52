//! One member in the simulation: the real replica and log, driven as the node's task and thread drive them.

use std::collections::VecDeque;

use consensus::{Config, Group, Peer};
use store::checkpoint::CheckpointError;
use store::log::{self, Log, LogError};
use store::open::{self, OpenError};
use store::replica::{Options, Replica, Room, Step, Write};

use crate::Bugs;
use crate::disk::SimDisk;

/// A member that may be down.
pub(crate) struct Host {
    pub id: u64,
    pub disk: SimDisk,
    pub live: Option<Live>,
    /// Counts starts, so that events of an earlier life are told apart.
    pub life: u64,
    /// Its clock is this far from the world's: nothing may depend on it.
    pub clock_offset_ms: u64,
    /// Until when it does nothing.
    pub paused_until: u64,
    /// How long a sync takes.
    pub sync_ms: u64,
    /// Whether the cluster has removed it; it may not know, and may still be up.
    pub leaving: bool,
    /// Whether it was removed from the cluster, for good.
    pub retired: bool,
}

/// A member that is up.
pub(crate) struct Live {
    pub replica: Replica,
    log: Log<SimDisk>,
    queue: VecDeque<Write>,
    /// The number that the group being written makes durable.
    staged: Option<u64>,
    /// The number that the group being synced makes durable.
    syncing: Option<Option<u64>>,
}

/// Why a member went down.
pub(crate) enum Down {
    /// The power went.
    Power,
    /// Its disk has no room to start on.
    Full,
    /// It says that it cannot go on, which is a failure of the run.
    Fault(String),
}

const SEGMENT_BYTES: u64 = 8 << 10;
/// So few that compactions are always under way.
const FORGET_CHANGES: usize = 1;
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

    /// A member that was added to a cluster and is to be told everything.
    pub(crate) fn joining(id: u64, clock_offset_ms: u64) -> Self {
        let disk = SimDisk::default();
        let (leaving, retired) = (false, false);
        Self { id, disk, live: None, life: 0, clock_offset_ms, paused_until: 0, sync_ms: 2, leaving, retired }
    }

    /// How the cluster knows it.
    pub(crate) fn peer(id: u64) -> Peer {
        let peer_urls = vec![format!("http://m{id}:2380")];
        Peer { id, name: format!("m{id}"), peer_urls, client_urls: vec![], learner: false }
    }

    /// Starts from what the disk holds.
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
        self.set_room(None);
        Ok(())
    }

    /// Takes the next step of the replica; its write goes to the disk's queue.
    pub(crate) fn step(&mut self, now_ms: u64) -> Result<Option<Step>, Down> {
        let now_ms = now_ms + self.clock_offset_ms;
        let Some(live) = &mut self.live else { return Ok(None) };
        let step = live.replica.step(now_ms).map_err(|error| Down::Fault(error.to_string()))?;
        live.replica.forget(FORGET_CHANGES);
        let Some(mut step) = step else { return Ok(None) };
        live.queue.extend(step.write.take());
        Ok(Some(step))
    }

    /// Writes what waits, unless a sync is under way; true when a sync was begun.
    pub(crate) fn begin_sync(&mut self, bugs: Bugs) -> Result<bool, Down> {
        let Some(live) = &mut self.live else { return Ok(false) };
        let waits = live.staged.is_some() || live.queue.iter().any(|write| write.persist.sync);
        if live.syncing.is_some() || !waits {
            return Ok(false);
        }
        let result = live.write_group(&self.disk, bugs);
        let written = result.map_err(|error| self.down(&error))?;
        self.set_room((!written).then_some(Room::None));
        Ok(written)
    }

    /// Looks for room on a disk that was full.
    pub(crate) fn probe(&mut self) -> Result<(), Down> {
        let Some(live) = &mut self.live else { return Ok(()) };
        let result = live.log.replenish();
        result.map_err(|error| self.down(&error.to_string()))?;
        if live_room(self.live.as_ref()) != Room::None {
            self.set_room(None);
        }
        Ok(())
    }

    /// How much room its log has.
    pub(crate) fn room(&self) -> Room {
        live_room(self.live.as_ref())
    }

    /// Tells the replica how much room there is: this, or what the log says.
    fn set_room(&mut self, room: Option<Room>) {
        let Some(live) = &mut self.live else { return };
        let room = room.unwrap_or(if live.log.is_low() { Room::Low } else { Room::Ample });
        if live.replica.room() != room {
            live.replica.set_room(room);
        }
    }

    /// The sync is done.
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

    /// Writes a checkpoint when enough has been logged.
    pub(crate) fn checkpoint(&mut self) -> Result<(), Down> {
        let Some(live) = &mut self.live else { return Ok(()) };
        if live.replica.log_bytes() < CHECKPOINT_BYTES {
            return Ok(());
        }
        let (meta, state) = live.replica.checkpoint();
        let released = match store::checkpoint::write(&self.disk, &meta, &state) {
            // The one before it still stands, and the log with it.
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

fn live_room(live: Option<&Live>) -> Room {
    live.map_or(Room::Ample, |live| live.replica.room())
}

impl Live {
    /// Writes what waits; false when there is no room for it, and it must be tried again.
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
