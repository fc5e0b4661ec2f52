//! A running cluster member: one task owns the replica, one thread owns the disk, and all others hold a [`Node`].

mod pending_proposals;
mod task;
mod writer;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use consensus::{Change, Group, Peer, Role};
use mvcc::{Command, LeaseId, Outcome, State};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::Instrument;

use crate::checkpoint::CheckpointError;
use crate::disk::{Disk, FileDisk};
use crate::open::{self, OpenError};
use crate::peer::{self, PeerTraffic, Tls, Traffic};
use crate::replica::ProposalResult;
use crate::sessions::Sessions;
use crate::value_file::ValueFile;
pub use writer::{DiskStats, SYNC_BUCKETS_MICROS};

pub struct Config {
    /// The member's ID, never 0.
    pub id: u64,
    pub cluster_id: u64,
    /// Directory of log and checkpoints.
    pub data_dir: PathBuf,
    /// Interval of a leader's heartbeats, and unit of the election timeout.
    pub heartbeat: Duration,
    /// Number of heartbeats without a leader until an election.
    pub election_ticks: usize,
    /// Action if the directory is empty.
    pub start: Start,
    /// Listeners for peers.
    pub listeners: Vec<TcpListener>,
    /// Peer TLS; none means plain text.
    pub tls: Option<Tls>,
    /// Called after every batch that changed the state, in order.
    pub on_apply: Box<dyn Fn(&State) + Send + Sync>,
    pub segment_bytes: u64,
    /// Minimum log size between checkpoints; a larger state waits for as many bytes as its own size.
    pub checkpoint_bytes: u64,
}

/// Start mode of a member with an empty directory.
pub enum Start {
    /// Bootstraps a new cluster; all its members start with the same list.
    New(Vec<Peer>),
    /// Joins an existing cluster. The member sends only to these peers until it knows the membership.
    Join(Vec<Peer>),
}

/// A member could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the data directory {path} cannot be used")]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the data directory {0} is in use by another process")]
    InUse(PathBuf),
    /// The content of the directory is unusable.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The bootstrap checkpoint could not be written.
    #[error(transparent)]
    Bootstrap(#[from] CheckpointError),
}

/// A proposal was not acknowledged.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProposeError {
    /// The proposal is in no log.
    #[error(transparent)]
    Rejected(#[from] consensus::ProposeError),
    /// The proposal timed out; whether it was or will be applied is unknown.
    #[error("request timed out")]
    Timeout,
    /// The disk of this member is full; the proposal is in no log.
    #[error("no space left on the disk of this member")]
    NoSpace,
    /// The member stopped; whether the proposal will be applied is unknown.
    #[error("the member has stopped")]
    Stopped,
}

/// A linearizable read failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// No quorum responded in time.
    #[error("request timed out")]
    Timeout,
    #[error("the member has stopped")]
    Stopped,
}

/// A lease request failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LeaseError {
    #[error("requested lease not found")]
    NotFound,
    #[error("no leader")]
    NoLeader,
    #[error("request timed out")]
    Timeout,
    #[error("the member has stopped")]
    Stopped,
}

/// A leadership transfer failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MoveError {
    #[error("not leader")]
    NotLeader,
    /// The target is not a voter.
    #[error("bad leader transferee")]
    BadTransferee,
    #[error("request timed out, leader transfer took too long")]
    Timeout,
}

/// The reason that a member stopped.
#[derive(Clone, Debug)]
pub enum StopReason {
    /// [`Node::stop`] was called.
    Requested,
    /// The member was removed from the cluster.
    Removed,
    /// The member failed permanently.
    Failed(Arc<dyn std::error::Error + Send + Sync>),
}

/// Status of a member.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeStatus {
    /// The leader's ID, or 0.
    pub leader: u64,
    pub term: u64,
    pub role: Role,
    pub commit: u64,
    pub applied: u64,
    pub is_learner: bool,
    /// Whether the disk is full: growing writes are then rejected.
    pub no_space: bool,
    /// Approximate size of log and checkpoint.
    pub disk_bytes: u64,
    pub disk: DiskStats,
    /// Number of leader changes.
    pub leader_changes: u64,
}

/// A handle to a running member.
#[derive(Clone)]
pub struct Node {
    shared: Arc<Inner>,
}

struct Inner {
    id: u64,
    cluster_id: u64,
    state: Arc<RwLock<State>>,
    requests: mpsc::Sender<Request>,
    status: watch::Receiver<NodeStatus>,
    group: watch::Receiver<Group>,
    stopped: watch::Receiver<Option<StopReason>>,
    /// Whether reads are linearizable without a quorum round. The task clears this before it processes anything by
    /// which another member could become leader.
    can_read_locally: Arc<AtomicBool>,
    timeout: Duration,
    traffic: Traffic,
    sessions: Sessions,
}

type Reply<T> = oneshot::Sender<T>;

enum Request {
    Propose { command: bytes::Bytes, grows: bool, reply: Reply<Result<ProposalResult, ProposeError>> },
    Change(Change, Reply<Result<ProposalResult, ProposeError>>),
    Read(Reply<()>),
    Lease { lease: LeaseId, renew: bool, reply: Reply<Result<i64, LeaseError>> },
    Transfer(u64, Reply<Result<(), MoveError>>),
    Stop,
}

/// Queue size of requests to the task; callers wait if it is full.
const REQUESTS_MAX: usize = 4096;
/// Queue size of peer frames; connections wait if it is full.
const INBOUND_MAX: usize = 256;

impl Node {
    /// Opens the directory and starts the member.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let path = config.data_dir.clone();
        let opening = tokio::task::spawn_blocking(move || open_directory(&config).map(|opened| (config, opened)));
        let failed = |error| StartError::Directory { path, source: std::io::Error::other(error) };
        let (config, opened) = opening.await.map_err(failed)??;
        let (requests, received) = mpsc::channel(REQUESTS_MAX);
        let election_ticks = u32::try_from(config.election_ticks).unwrap_or(u32::MAX);
        // etcd's request timeout: five seconds plus two election timeouts.
        let timeout = Duration::from_secs(5) + config.heartbeat * election_ticks * 2;
        let (id, cluster_id) = (config.id, config.cluster_id);
        let started = task::start(config, opened, received, timeout);
        let shared = Inner {
            id,
            cluster_id,
            state: started.state,
            requests,
            status: started.status,
            group: started.group,
            stopped: started.stopped,
            can_read_locally: started.can_read_locally,
            timeout,
            traffic: started.traffic,
            sessions: started.sessions,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub fn id(&self) -> u64 {
        self.shared.id
    }

    pub fn cluster_id(&self) -> u64 {
        self.shared.cluster_id
    }

    /// Replicates a command and waits until this member has applied it.
    pub async fn propose(&self, command: &Command) -> Result<Outcome, ProposeError> {
        let (grows, command) = (command.grows(), command.encode());
        match self
            .call(|reply| Request::Propose { command, grows, reply })
            .await
            .unwrap_or(Err(ProposeError::Stopped))?
        {
            ProposalResult::Outcome(outcome) => Ok(outcome),
            ProposalResult::Changed(_) => unreachable!("a command has a command outcome"),
        }
    }

    /// Changes the membership and waits until the change is in effect on this member.
    pub async fn change(&self, change: Change) -> Result<(), ProposeError> {
        match self.call(|reply| Request::Change(change, reply)).await.unwrap_or(Err(ProposeError::Stopped))? {
            ProposalResult::Changed(result) => Ok(result.map_err(consensus::ProposeError::Change)?),
            ProposalResult::Outcome(_) => unreachable!("a membership change has a change result"),
        }
    }

    /// Waits until the local state contains everything that was acknowledged by any member before the call.
    pub async fn read_index(&self) -> Result<(), ReadError> {
        if self.shared.can_read_locally.load(Ordering::Acquire) {
            return Ok(());
        }
        match tokio::time::timeout(self.shared.timeout, self.call(Request::Read)).await {
            Ok(Some(())) => Ok(()),
            Ok(None) => Err(ReadError::Stopped),
            Err(_) => Err(ReadError::Timeout),
        }
    }

    /// Reads the state. Writes are blocked during the call: clone the state for anything long, which is cheap.
    pub fn view<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        read(&self.shared.state.read().expect("no holder of the state panics"))
    }

    pub fn status(&self) -> NodeStatus {
        self.shared.status.borrow().clone()
    }

    /// Returns the traffic with each peer since the start.
    pub fn peer_traffic(&self) -> Vec<PeerTraffic> {
        self.shared.traffic.counters()
    }

    pub fn sessions(&self) -> &Sessions {
        &self.shared.sessions
    }

    /// Returns a watch on the status, which changes with every change of leader.
    pub fn status_watch(&self) -> watch::Receiver<NodeStatus> {
        self.shared.status.clone()
    }

    /// Returns the members known to this member, which may be stale.
    pub fn members(&self) -> Vec<Peer> {
        self.shared.group.borrow().members().cloned().collect()
    }

    /// Returns a watch on the membership.
    pub fn group_watch(&self) -> watch::Receiver<Group> {
        self.shared.group.clone()
    }

    /// Transfers leadership to another voter and waits until that one is leader.
    pub async fn move_leader(&self, to: u64) -> Result<(), MoveError> {
        self.call(|reply| Request::Transfer(to, reply)).await.unwrap_or(Err(MoveError::NotLeader))?;
        let mut status = self.shared.status.clone();
        let moved = status.wait_for(|status| status.leader == to);
        match tokio::time::timeout(self.shared.timeout, moved).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(MoveError::Timeout),
        }
    }

    /// Renews a lease and returns its new TTL in seconds.
    pub async fn lease_renew(&self, lease: LeaseId) -> Result<i64, LeaseError> {
        self.lease(lease, true).await
    }

    /// Returns the remaining seconds of a lease.
    pub async fn lease_remaining(&self, lease: LeaseId) -> Result<i64, LeaseError> {
        self.lease(lease, false).await
    }

    /// Waits until the member has stopped and returns the reason.
    pub async fn stopped(&self) -> StopReason {
        let mut stopped = self.shared.stopped.clone();
        let reason = stopped.wait_for(Option::is_some).await;
        reason.ok().and_then(|reason| reason.clone()).unwrap_or(StopReason::Requested)
    }

    /// Stops the member after transferring leadership and writing accepted entries.
    pub async fn stop(&self) {
        let _ = self.shared.requests.send(Request::Stop).await;
        self.stopped().await;
    }

    async fn lease(&self, lease: LeaseId, renew: bool) -> Result<i64, LeaseError> {
        let response = self.call(|reply| Request::Lease { lease, renew, reply });
        match tokio::time::timeout(self.shared.timeout, response).await {
            Ok(response) => response.unwrap_or(Err(LeaseError::Stopped)),
            Err(_) => Err(LeaseError::Timeout),
        }
    }

    async fn call<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Option<T> {
        let (reply, response) = oneshot::channel();
        self.shared.requests.send(request(reply)).await.ok()?;
        response.await.ok()
    }
}

struct OpenedDirectory {
    opened: open::RecoveredMember<FileDisk>,
    value_file: ValueFile,
    /// The lock on the data directory, held while the member runs.
    lock: std::fs::File,
}

fn open_directory(config: &Config) -> Result<OpenedDirectory, StartError> {
    let path = config.data_dir.clone();
    let unusable = |source| StartError::Directory { path: path.clone(), source };
    let disk = FileDisk::open(&path).map_err(unusable)?;
    let lock = crate::disk::lock_file(&path.join("lock")).map_err(unusable)?;
    lock.try_lock().map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => StartError::InUse(path.clone()),
        std::fs::TryLockError::Error(source) => unusable(source),
    })?;
    let names = disk.list().map_err(unusable)?;
    let is_new = !names.iter().any(|name| name.starts_with("checkpoint-") || name.ends_with(".log"));
    if let (true, Start::New(peers)) = (is_new, &config.start) {
        open::bootstrap(&disk, Group::new(peers.iter().cloned()))?;
    }
    let identity = (config.cluster_id, config.id);
    let value_file = ValueFile::in_directory(&path);
    let log = crate::log::Config { identity, segment_bytes: config.segment_bytes };
    let opened = open::open_to(disk, log, &value_file)?;
    Ok(OpenedDirectory { opened, value_file, lock })
}

/// Creates the links to peers and starts the listeners.
fn listen(
    config: &mut Config,
    value_file: &ValueFile,
    group: &watch::Receiver<Group>,
    inbound: &mpsc::Sender<peer::Inbound>,
    traffic: &Traffic,
) {
    for socket in config.listeners.drain(..) {
        let listener = peer::Listener {
            cluster: config.cluster_id,
            id: config.id,
            tls: config.tls.clone(),
            value_file: value_file.clone(),
            group: group.clone(),
            inbound: inbound.clone(),
            traffic: traffic.clone(),
        };
        tokio::spawn(peer::listen(socket, listener).in_current_span());
    }
}
