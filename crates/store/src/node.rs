//! A running member: one task owns the replica, one thread owns the disk, everybody else holds a [`Node`].

mod task;
mod waiters;
mod writer;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use consensus::{Change, Group, Peer, Role};
use mvcc::{Command, LeaseId, Outcome, State};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use crate::checkpoint::CheckpointError;
use crate::disk::{Disk, FileDisk};
use crate::open::{self, OpenError};
use crate::peer::{self, PeerTraffic, Tls, Traffic};
use crate::replica::Answer;
use crate::sessions::Sessions;
use crate::shelf::Shelf;
pub use writer::{DiskStats, SYNC_BUCKETS_MICROS};

/// How a member runs; given at start.
pub struct Config {
    /// Its identity, never 0.
    pub id: u64,
    /// The cluster's.
    pub cluster_id: u64,
    /// Where log and checkpoints are.
    pub data_dir: PathBuf,
    /// The time between a leader's heartbeats, and the unit of election time.
    pub heartbeat: Duration,
    /// Heartbeats without a leader until an election.
    pub election_ticks: usize,
    /// What to do when the directory is empty.
    pub start: Start,
    /// Where other members reach this one.
    pub listeners: Vec<TcpListener>,
    /// Certificates, when peers speak TLS.
    pub tls: Option<Tls>,
    /// Called after every batch that changed the state, in order.
    pub on_apply: Box<dyn Fn(&State) + Send + Sync>,
    /// Bytes of a log segment.
    pub segment_bytes: u64,
    /// Bytes of log after which a checkpoint is written, at least; a larger state waits for as many bytes as it has.
    pub checkpoint_bytes: u64,
}

/// What a member does when its directory is empty.
pub enum Start {
    /// It starts a new cluster with these members, which all start with the same list.
    New(Vec<Peer>),
    /// It waits for the cluster it was added to; these are the members it answers until it is told.
    Join(Vec<Peer>),
}

/// Why a member could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The directory cannot be used.
    #[error("the data directory {path} cannot be used")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another process uses it.
    #[error("the data directory {0} is in use by another process")]
    InUse(PathBuf),
    /// What is in it cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A new cluster could not be laid down.
    #[error(transparent)]
    Bootstrap(#[from] CheckpointError),
}

/// Why a write was not acknowledged.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProposeError {
    /// It is in no log.
    #[error(transparent)]
    Refused(#[from] consensus::ProposeError),
    /// It took too long; whether it was or will be applied is unknown.
    #[error("request timed out")]
    Timeout,
    /// The disk of this member is full; it is in no log.
    #[error("no space left on the disk of this member")]
    NoSpace,
    /// The member has stopped; whether it will be applied is unknown.
    #[error("the member has stopped")]
    Stopped,
}

/// Why a read could not be made linearizable.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// No quorum answered in time.
    #[error("request timed out")]
    Timeout,
    /// The member has stopped.
    #[error("the member has stopped")]
    Stopped,
}

/// Why nothing can be said of a lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LeaseError {
    /// There is no such lease.
    #[error("requested lease not found")]
    NotFound,
    /// There is no leader to ask.
    #[error("no leader")]
    NoLeader,
    /// The leader did not answer in time.
    #[error("request timed out")]
    Timeout,
    /// The member has stopped.
    #[error("the member has stopped")]
    Stopped,
}

/// Why leadership did not move.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MoveError {
    /// This member does not lead.
    #[error("not leader")]
    NotLeader,
    /// The other one is no voter.
    #[error("bad leader transferee")]
    BadTransferee,
    /// It did not happen in time.
    #[error("request timed out, leader transfer took too long")]
    Timeout,
}

/// Why a member stopped.
#[derive(Clone, Debug)]
pub enum StopReason {
    /// It was asked to.
    Asked,
    /// It was removed from the cluster.
    Removed,
    /// It cannot go on.
    Failed(Arc<dyn std::error::Error + Send + Sync>),
}

/// How a member stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeStatus {
    /// Who leads, or 0.
    pub leader: u64,
    /// Its term.
    pub term: u64,
    /// What it is.
    pub role: Role,
    /// The last entry known to be committed.
    pub commit: u64,
    /// The last entry applied.
    pub applied: u64,
    /// Whether it has no vote.
    pub is_learner: bool,
    /// Whether its disk is full: it takes nothing then that grows the store.
    pub no_space: bool,
    /// Bytes of log and checkpoint on disk, about.
    pub disk_bytes: u64,
    /// What its disk did.
    pub disk: DiskStats,
    /// How often another member came to lead.
    pub leader_changes: u64,
}

/// A handle to a running member.
#[derive(Clone)]
pub struct Node {
    shared: Arc<Shared>,
}

struct Shared {
    id: u64,
    cluster_id: u64,
    state: Arc<RwLock<State>>,
    requests: mpsc::Sender<Request>,
    status: watch::Receiver<NodeStatus>,
    group: watch::Receiver<Group>,
    stopped: watch::Receiver<Option<StopReason>>,
    /// Whether reads need to ask nobody. The task says that they do before it hears anything by which somebody else could come to lead.
    reads_freely: Arc<AtomicBool>,
    patience: Duration,
    traffic: Traffic,
    sessions: Sessions,
}

type Reply<T> = oneshot::Sender<T>;

enum Request {
    Propose { command: bytes::Bytes, grows: bool, reply: Reply<Result<Answer, ProposeError>> },
    Change(Change, Reply<Result<Answer, ProposeError>>),
    Read(Reply<()>),
    Lease { lease: LeaseId, renew: bool, reply: Reply<Result<i64, LeaseError>> },
    Transfer(u64, Reply<Result<(), MoveError>>),
    Stop,
}

/// Requests that wait to be taken by the task; beyond that, callers wait.
const REQUESTS_MAX: usize = 4096;
/// Frames of peers that wait to be taken; beyond that, their connections wait.
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
        // etcd's: five seconds, and two elections.
        let patience = Duration::from_secs(5) + config.heartbeat * election_ticks * 2;
        let (id, cluster_id) = (config.id, config.cluster_id);
        let started = task::start(config, opened, received, patience);
        let shared = Shared {
            id,
            cluster_id,
            state: started.state,
            requests,
            status: started.status,
            group: started.group,
            stopped: started.stopped,
            reads_freely: started.reads_freely,
            patience,
            traffic: started.traffic,
            sessions: started.sessions,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Its identity.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// The cluster's identity.
    pub fn cluster_id(&self) -> u64 {
        self.shared.cluster_id
    }

    /// Replicates a command and waits until it is applied here.
    pub async fn propose(&self, command: &Command) -> Result<Outcome, ProposeError> {
        let (grows, command) = (command.grows(), command.encode());
        match self
            .ask(|reply| Request::Propose { command, grows, reply })
            .await
            .unwrap_or(Err(ProposeError::Stopped))?
        {
            Answer::Outcome(outcome) => Ok(outcome),
            Answer::Changed(_) => unreachable!("a command is answered with its outcome"),
        }
    }

    /// Changes the membership and waits until the change is in effect here.
    pub async fn change(&self, change: Change) -> Result<(), ProposeError> {
        match self.ask(|reply| Request::Change(change, reply)).await.unwrap_or(Err(ProposeError::Stopped))? {
            Answer::Changed(result) => Ok(result.map_err(consensus::ProposeError::Change)?),
            Answer::Outcome(_) => unreachable!("a change is answered with its result"),
        }
    }

    /// Waits until the state here holds everything that was acknowledged anywhere before the call.
    pub async fn read_index(&self) -> Result<(), ReadError> {
        if self.shared.reads_freely.load(Ordering::Acquire) {
            return Ok(());
        }
        match tokio::time::timeout(self.shared.patience, self.ask(Request::Read)).await {
            Ok(Some(())) => Ok(()),
            Ok(None) => Err(ReadError::Stopped),
            Err(_) => Err(ReadError::Timeout),
        }
    }

    /// Looks at the state. Writes wait meanwhile: take a clone out for anything long, it costs nothing.
    pub fn view<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        read(&self.shared.state.read().expect("nobody panics while holding the state"))
    }

    /// How the member stands.
    pub fn status(&self) -> NodeStatus {
        self.shared.status.borrow().clone()
    }

    /// What went to the other members and came from them since the start.
    pub fn peer_traffic(&self) -> Vec<PeerTraffic> {
        self.shared.traffic.told()
    }

    /// The sessions of authenticated users.
    pub fn sessions(&self) -> &Sessions {
        &self.shared.sessions
    }

    /// Hears of every change of leader.
    pub fn status_watch(&self) -> watch::Receiver<NodeStatus> {
        self.shared.status.clone()
    }

    /// The members, as far as this one has heard.
    pub fn members(&self) -> Vec<Peer> {
        self.shared.group.borrow().members().cloned().collect()
    }

    /// Hears of every change of membership.
    pub fn group_watch(&self) -> watch::Receiver<Group> {
        self.shared.group.clone()
    }

    /// Hands leadership to another voter and waits until it leads.
    pub async fn move_leader(&self, to: u64) -> Result<(), MoveError> {
        self.ask(|reply| Request::Transfer(to, reply)).await.unwrap_or(Err(MoveError::NotLeader))?;
        let mut status = self.shared.status.clone();
        let moved = status.wait_for(|status| status.leader == to);
        match tokio::time::timeout(self.shared.patience, moved).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(MoveError::Timeout),
        }
    }

    /// Renews a lease; the seconds it then has.
    pub async fn lease_renew(&self, lease: LeaseId) -> Result<i64, LeaseError> {
        self.lease(lease, true).await
    }

    /// The seconds a lease still has.
    pub async fn lease_remaining(&self, lease: LeaseId) -> Result<i64, LeaseError> {
        self.lease(lease, false).await
    }

    /// Waits until the member has stopped, and says why.
    pub async fn stopped(&self) -> StopReason {
        let mut stopped = self.shared.stopped.clone();
        let reason = stopped.wait_for(Option::is_some).await;
        reason.ok().and_then(|reason| reason.clone()).unwrap_or(StopReason::Asked)
    }

    /// Stops the member: leadership is handed over, what was accepted is written.
    pub async fn stop(&self) {
        let _ = self.shared.requests.send(Request::Stop).await;
        self.stopped().await;
    }

    async fn lease(&self, lease: LeaseId, renew: bool) -> Result<i64, LeaseError> {
        let answer = self.ask(|reply| Request::Lease { lease, renew, reply });
        match tokio::time::timeout(self.shared.patience, answer).await {
            Ok(answer) => answer.unwrap_or(Err(LeaseError::Stopped)),
            Err(_) => Err(LeaseError::Timeout),
        }
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.shared.requests.send(request(reply)).await.ok()?;
        answer.await.ok()
    }
}

struct OpenedDirectory {
    opened: open::Opened<FileDisk>,
    shelf: Shelf,
    /// Held as long as the member runs.
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
    let shelf = Shelf::in_directory(&path);
    let log = crate::log::Config { identity, segment_bytes: config.segment_bytes };
    let opened = open::open_to(disk, log, &shelf)?;
    Ok(OpenedDirectory { opened, shelf, lock })
}

/// What peers are told and asked by.
fn listen(
    config: &mut Config,
    shelf: &Shelf,
    group: &watch::Receiver<Group>,
    inbound: &mpsc::Sender<peer::Inbound>,
    traffic: &Traffic,
) {
    for socket in config.listeners.drain(..) {
        let listener = peer::Listener {
            cluster: config.cluster_id,
            id: config.id,
            tls: config.tls.clone(),
            shelf: shelf.clone(),
            group: group.clone(),
            inbound: inbound.clone(),
            traffic: traffic.clone(),
        };
        tokio::spawn(peer::listen(socket, listener));
    }
}
