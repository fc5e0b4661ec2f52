//! The task that owns the replica.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use consensus::{Group, Role};
use mvcc::{LeaseId, State};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::Instrument;

use super::Start;
use super::pending_proposals::{ProposalKind, Waiter, Waiters};
use super::writer::{self, DiskStats, Event, Job};
use super::{
    Config, INBOUND_MAX, LeaseError, MoveError, NodeStatus, OpenedDirectory, ProposeError, Reply, Request, StopReason,
};
use crate::checkpoint;
use crate::disk::FileDisk;
use crate::peer::{Frame, Heartbeats, Identity, Inbound, LeaseReply, Links, Traffic, stream_snapshot};
use crate::replica::{FreeSpace, Options, Replica, ReplicaError, Step, Stream};
use crate::sessions::Sessions;
use crate::value_file::ValueFile;

/// Everything that the `Node` handle needs from the task.
pub(super) struct TaskHandles {
    pub state: Arc<RwLock<State>>,
    pub status: watch::Receiver<NodeStatus>,
    pub group: watch::Receiver<Group>,
    pub stopped: watch::Receiver<Option<StopReason>>,
    pub can_read_locally: Arc<AtomicBool>,
    pub traffic: Traffic,
    pub sessions: Sessions,
}

/// Maximum number of requests per append to the log.
const BATCH: usize = 512;
/// Maximum size of entries per message.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;
const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;
/// Number of changes processed at a time when history is removed after a compaction: less than a millisecond of work.
const PRUNED_CHANGES_MAX: usize = 256;
/// Interval of checks for space on a full disk.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

struct Task {
    config: Config,
    timeout: Duration,
    replica: Replica,
    links: Links,
    heartbeats: Heartbeats,
    jobs: mpsc::Sender<Job>,
    waiters: Waiters,
    reads: BTreeMap<u64, Reader>,
    next_token: u64,
    /// Lease requests to which the leader has not responded yet.
    leases: BTreeMap<u64, Reply<Result<i64, LeaseError>>>,
    internal: mpsc::Sender<Internal>,
    began: Instant,
    checkpointing: bool,
    /// Time of the next check for space while the disk is full.
    probe_at: Instant,
    stopping: Option<Instant>,
    status: watch::Sender<NodeStatus>,
    group: watch::Sender<Group>,
    can_read_locally: Arc<AtomicBool>,
    disk: FileDisk,
    value_file: ValueFile,
    stats: DiskStats,
    leader_changes: u64,
    /// The last leader that writes were proposed to, and its term.
    followed: (u64, u64),
    sessions: Sessions,
    _lock: std::fs::File,
}

/// The requester of a linearizable read.
enum Reader {
    Client(Reply<()>),
    Lease { lease: LeaseId, renew: bool, reply: Reply<Result<i64, LeaseError>> },
    PeerLease { lease: LeaseId, renew: bool, peer: u64, request: u64 },
}

/// Reports from helper tasks.
enum Internal {
    SnapshotSent { to: u64, arrived: bool },
    Checkpointed { index: u64, result: Result<(), checkpoint::CheckpointError> },
}

/// Starts the task and the disk thread.
pub(super) fn start(
    mut config: Config,
    directory: OpenedDirectory,
    requests: mpsc::Receiver<Request>,
    timeout: Duration,
) -> TaskHandles {
    let OpenedDirectory { opened, value_file, lock } = directory;
    if opened.torn_bytes > 0 {
        tracing::info!(
            bytes = opened.torn_bytes,
            "truncated the torn end of the log after a crash; nothing in it was acknowledged"
        );
    }
    let disk = opened.log.disk().clone();
    let member = consensus::Config {
        id: config.id,
        heartbeat_ticks: 1,
        election_ticks: config.election_ticks,
        seed: RandomState::new().hash_one(config.id),
        boot: opened.boot,
        message_bytes_max: MESSAGE_BYTES_MAX,
        uncommitted_bytes_max: UNCOMMITTED_BYTES_MAX,
    };
    let election = config.heartbeat * u32::try_from(config.election_ticks).unwrap_or(u32::MAX);
    let lease_extension_ms = u64::try_from(election.as_millis()).unwrap_or(u64::MAX);
    let options = Options { lease_extension_ms, ..Options::default() };
    let replica = Replica::new(member, opened.recovered, opened.state, options).with_value_file(value_file.clone());
    let (jobs, received_jobs) = mpsc::channel(writer::JOBS_MAX);
    let (events_sender, events) = mpsc::unbounded_channel();
    let log = opened.log;
    let thread = std::thread::Builder::new().name("store-log".into());
    let span = tracing::Span::current();
    let write = move || span.in_scope(|| writer::run(log, received_jobs, events_sender));
    let handle = thread.spawn(write).expect("the thread starts");
    let (lost_sender, lost) = mpsc::channel(64);
    let (internal_sender, internal) = mpsc::channel(64);
    let (inbound_sender, inbound) = mpsc::channel(INBOUND_MAX);
    let (group, group_watch) = watch::channel(replica.member().group().clone());
    let traffic = Traffic::default();
    let identity =
        Identity { cluster: config.cluster_id, id: config.id, tls: config.tls.clone(), traffic: traffic.clone() };
    super::listen(&mut config, &value_file, &group_watch, &inbound_sender, &traffic);
    let links = Links::new(identity, lost_sender);
    let state = replica.state();
    let (status, status_watch) = watch::channel(initial_status());
    let (stopped_sender, stopped) = watch::channel(None);
    let can_read_locally = Arc::new(AtomicBool::new(false));
    let local_reads = can_read_locally.clone();
    let sessions = Sessions::default();
    let task = Task {
        config,
        timeout,
        replica,
        links,
        heartbeats: Heartbeats::default(),
        jobs,
        waiters: Waiters::default(),
        reads: BTreeMap::new(),
        next_token: 0,
        leases: BTreeMap::new(),
        internal: internal_sender,
        began: Instant::now(),
        checkpointing: false,
        probe_at: Instant::now(),
        stopping: None,
        status,
        group,
        can_read_locally: can_read_locally.clone(),
        disk,
        value_file,
        stats: DiskStats::default(),
        leader_changes: 0,
        followed: (0, 0),
        sessions: sessions.clone(),
        _lock: lock,
    };
    let inputs = Inputs { requests, inbound, events, lost, internal };
    let task = async move {
        let reason = task.run(inputs).await;
        local_reads.store(false, Ordering::Release);
        // The job channel closes with the task: the thread writes the remaining jobs and exits.
        let _ = tokio::task::spawn_blocking(move || handle.join()).await;
        let _ = stopped_sender.send(Some(reason));
    };
    tokio::spawn(task.in_current_span());
    TaskHandles { state, status: status_watch, group: group_watch, stopped, can_read_locally, traffic, sessions }
}

struct Inputs {
    requests: mpsc::Receiver<Request>,
    inbound: mpsc::Receiver<Inbound>,
    events: mpsc::UnboundedReceiver<Event>,
    lost: mpsc::Receiver<u64>,
    internal: mpsc::Receiver<Internal>,
}

impl Task {
    async fn run(mut self, mut inputs: Inputs) -> StopReason {
        match &self.config.start {
            Start::Join(peers) if self.replica.member().group().members().next().is_none() => {
                self.links.follow(&Group::new(peers.iter().cloned()));
            }
            _ => self.links.follow(self.replica.member().group()),
        }
        if self.replica.member().group().is_sole_voter(self.config.id) {
            self.replica.campaign();
        }
        let mut ticker = tokio::time::interval(self.config.heartbeat);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            match self.drain().await {
                Ok(None) => {}
                Ok(Some(reason)) => return reason,
                Err(error) => return StopReason::Failed(Arc::new(error)),
            }
            let forgets = self.replica.prune(PRUNED_CHANGES_MAX);
            let expiry = self.lease_deadline();
            let ticks = self.needs_ticks();
            tokio::select! {
                Some(event) = inputs.events.recv() => {
                    if let Err(reason) = self.disk_event(event) {
                        return reason;
                    }
                }
                count = inputs.requests.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        return StopReason::Requested;
                    }
                    gather(&mut inputs.requests, &mut batch).await;
                    self.requests(&mut batch);
                }
                Some(inbound) = inputs.inbound.recv() => {
                    if let Err(error) = self.inbound(inbound) {
                        return StopReason::Failed(Arc::new(error));
                    }
                }
                Some(peer) = inputs.lost.recv() => {
                    self.heartbeats.lost(peer);
                    self.replica.unreachable(peer);
                }
                Some(internal) = inputs.internal.recv() => self.internal(internal).await,
                _ = ticker.tick(), if ticks => self.tick(),
                // Pending requests come first; then the next part of the history is removed.
                () = tokio::task::yield_now(), if forgets => {}
                () = tokio::time::sleep_until(expiry.unwrap_or(self.began)), if !ticks && expiry.is_some() => {
                    let now = self.now_ms();
                    self.replica.expire(now);
                }
            }
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether the tick timer must run. A single-member leader without waiters needs no clock.
    fn needs_ticks(&self) -> bool {
        !self.replica.member().is_idle()
            || !self.waiters.is_empty()
            || !self.reads.is_empty()
            || self.replica.minds_space()
            || self.stopping.is_some()
    }

    fn lease_deadline(&self) -> Option<Instant> {
        let deadline = self.replica.lessor()?.next_deadline()?;
        // At least one tick ahead: an expired deadline is already being processed.
        let earliest = Instant::now() + self.config.heartbeat;
        Some((self.began + Duration::from_millis(deadline)).max(earliest))
    }

    fn tick(&mut self) {
        let now = self.now_ms();
        self.replica.tick(now);
        self.waiters.expire(Instant::now());
        self.reads.retain(|_, reader| match reader {
            Reader::Client(reply) => !reply.is_closed(),
            Reader::Lease { reply, .. } => !reply.is_closed(),
            Reader::PeerLease { .. } => true,
        });
        self.leases.retain(|_, reply| !reply.is_closed());
        if self.waiters.has_parked() && self.replica.member().status().leader != 0 {
            self.waiters.unpark(&mut self.replica);
        }
        if self.replica.free_space() == FreeSpace::Low && self.probe_at <= Instant::now() {
            self.probe_at = Instant::now() + PROBE_INTERVAL;
            // If the queue is full, other jobs are more urgent.
            let _ = self.jobs.try_send(Job::Probe);
        }
    }

    fn requests(&mut self, batch: &mut Vec<Request>) {
        let deadline = Instant::now() + self.timeout;
        let mut proposals = Vec::with_capacity(batch.len());
        for request in batch.drain(..) {
            match request {
                Request::Propose { grows, reply, .. } if !self.has_space_for(grows) => {
                    let _ = reply.send(Err(ProposeError::NoSpace));
                }
                Request::Change(_, reply) if !self.has_space_for(false) => {
                    let _ = reply.send(Err(ProposeError::NoSpace));
                }
                Request::Propose { command, reply, .. } => {
                    proposals.push(Waiter {
                        proposal_kind: ProposalKind::Command(command),
                        sequence: None,
                        reply,
                        deadline,
                    });
                }
                Request::Change(change, reply) => {
                    proposals.push(Waiter {
                        proposal_kind: ProposalKind::Change(change),
                        sequence: None,
                        reply,
                        deadline,
                    });
                }
                Request::Read(reply) => self.read(Reader::Client(reply)),
                Request::Lease { lease, renew, reply } => self.lease(lease, renew, reply),
                Request::Transfer(to, reply) => {
                    let _ = reply.send(self.transfer(to));
                }
                Request::Stop => self.stop(),
            }
        }
        self.waiters.propose(proposals, &mut self.replica);
    }

    /// Whether there is space for a request: with little space only for requests that do not grow the store.
    fn has_space_for(&self, grows: bool) -> bool {
        match self.replica.free_space() {
            FreeSpace::Ample => true,
            FreeSpace::Low => !grows,
            FreeSpace::None => false,
        }
    }

    fn read(&mut self, reader: Reader) {
        self.next_token += 1;
        self.reads.insert(self.next_token, reader);
        self.replica.read(self.next_token);
    }

    fn lease(&mut self, lease: LeaseId, renew: bool, reply: Reply<Result<i64, LeaseError>>) {
        let status = self.replica.member().status();
        if status.role == Role::Leader {
            self.read(Reader::Lease { lease, renew, reply });
            return;
        }
        self.next_token += 1;
        let request = self.next_token;
        if self.links.send(status.leader, &Frame::Lease { request, lease, renew }) {
            self.leases.insert(request, reply);
        } else {
            let _ = reply.send(Err(LeaseError::NoLeader));
        }
    }

    fn transfer(&mut self, to: u64) -> Result<(), MoveError> {
        let status = self.replica.member().status();
        if status.role != Role::Leader {
            return Err(MoveError::NotLeader);
        }
        if self.replica.member().group().member(to).is_none_or(|peer| peer.learner) {
            return Err(MoveError::BadTransferee);
        }
        self.replica.transfer(to);
        Ok(())
    }

    fn stop(&mut self) {
        let election = self.config.heartbeat * u32::try_from(self.config.election_ticks).unwrap_or(u32::MAX);
        let mut grace = Duration::ZERO;
        if self.replica.member().status().role == Role::Leader
            && let Some(successor) = self.replica.member().successor(|_| true)
        {
            self.replica.transfer(successor);
            grace = election;
        }
        self.stopping.get_or_insert(Instant::now() + grace);
    }

    fn inbound(&mut self, inbound: Inbound) -> Result<(), ReplicaError> {
        match inbound {
            Inbound::Frame(from, Frame::Message(message)) => {
                if message.is_heartbeat_response()
                    && let Some(took) = self.heartbeats.record_response(from, Instant::now())
                {
                    self.links.identity().traffic.of(from).round_trip(took);
                }
                self.replica.message(from, *message)
            }
            Inbound::Frame(from, Frame::Lease { request, lease, renew }) => {
                if self.replica.member().status().role == Role::Leader {
                    self.read(Reader::PeerLease { lease, renew, peer: from, request });
                } else {
                    self.links.send(from, &Frame::LeaseReply { request, response: LeaseReply::NotLeader });
                }
                Ok(())
            }
            Inbound::Frame(_, Frame::LeaseReply { request, response }) => {
                if let Some(reply) = self.leases.remove(&request) {
                    let _ = reply.send(match response {
                        LeaseReply::Seconds(seconds) => Ok(seconds),
                        LeaseReply::NotFound => Err(LeaseError::NotFound),
                        LeaseReply::NotLeader => Err(LeaseError::NoLeader),
                    });
                }
                Ok(())
            }
            Inbound::Snapshot(from, message, state, response) => {
                // A snapshot needs space for a checkpoint.
                let has_space = self.replica.free_space() == FreeSpace::Ample;
                let _ = response.send(has_space);
                if has_space { self.replica.snapshot(from, *message, *state) } else { Ok(()) }
            }
            Inbound::PeerDisconnected(peer) => {
                self.heartbeats.lost(peer);
                self.replica.peer_disconnected(peer);
                Ok(())
            }
        }
    }

    fn disk_event(&mut self, event: Event) -> Result<(), StopReason> {
        match event {
            Event::Persisted(number, stats) => {
                self.stats = stats;
                self.replica.persisted(number);
            }
            Event::FreeSpace(free_space) => {
                self.replica.set_free_space(free_space);
                self.publish();
            }
            Event::Failed(error) => return Err(StopReason::Failed(Arc::new(error))),
        }
        Ok(())
    }

    async fn internal(&mut self, internal: Internal) {
        match internal {
            Internal::SnapshotSent { to, arrived } => self.replica.snapshot_sent(to, arrived),
            Internal::Checkpointed { index, result: Ok(()) } => {
                self.checkpointing = false;
                let _ = self.jobs.send(Job::Release(index)).await;
            }
            Internal::Checkpointed { index, result: Err(error) } => {
                self.checkpointing = false;
                tracing::error!(index, error = &error as &dyn std::error::Error, "failed to write a checkpoint");
            }
        }
    }

    /// Executes all pending steps of the replica. Returns a reason to stop, if there is one.
    async fn drain(&mut self) -> Result<Option<StopReason>, ReplicaError> {
        let mut applied = false;
        let mut removed = false;
        let mut changed = false;
        while let Some(step) = self.replica.step(self.now_ms())? {
            if !self.replica.can_read_locally() {
                self.can_read_locally.store(false, Ordering::Release);
            }
            let moved = step.installed || !step.applied.is_empty();
            applied |= moved;
            removed |= step.removed;
            changed |= step.changed.is_some() || moved;
            self.step(step).await;
        }
        self.can_read_locally.store(self.replica.can_read_locally(), Ordering::Release);
        if applied {
            let state = self.replica.state();
            let state = state.read().expect("no holder of the state panics").clone();
            (self.config.on_apply)(&state);
            self.follow_group();
            self.checkpoint(&state);
        }
        if changed {
            self.publish();
        }
        if removed {
            return Ok(Some(StopReason::Removed));
        }
        let handed_over = self.replica.member().status().role != Role::Leader;
        let stop = self.stopping.is_some_and(|deadline| handed_over || deadline <= Instant::now());
        Ok(stop.then_some(StopReason::Requested))
    }

    async fn step(&mut self, step: Step) {
        for (to, message) in step.send {
            let is_heartbeat = message.is_heartbeat();
            if !self.links.send(to, &Frame::Message(Box::new(message))) {
                self.replica.unreachable(to);
            } else if is_heartbeat {
                self.heartbeats.sent(to, Instant::now());
            }
        }
        if let Some(write) = step.write {
            // Waiting here is the back-pressure of a slow disk. An exited thread has already reported its error.
            let _ = self.jobs.send(Job::Write(Box::new(write))).await;
        }
        for stream in step.streams {
            self.stream(stream);
        }
        if step.installed {
            self.waiters.fail_undecided();
        }
        // Before the responses: a client may use its new token immediately.
        for change in step.sessions {
            self.sessions.apply(change, std::time::Instant::now());
        }
        for (sequence, response) in step.responses {
            self.waiters.resolve(sequence, response);
        }
        for token in step.reads {
            self.confirmed(token);
        }
        if let Some(status) = step.changed {
            if status.role != Role::Leader {
                self.heartbeats = Heartbeats::default();
            }
            if status.leader != 0 && status.leader != self.status.borrow().leader {
                self.leader_changes += 1;
                tracing::info!(leader = format!("{:x}", status.leader), term = status.term, "a leader was elected");
            }
            if status.leader != 0 && (status.leader, status.term) != self.followed {
                self.followed = (status.leader, status.term);
                self.waiters.follow_leader(&mut self.replica);
            } else if status.leader != 0 {
                self.waiters.unpark(&mut self.replica);
            }
        }
    }

    fn confirmed(&mut self, token: u64) {
        let now = self.now_ms();
        match self.reads.remove(&token) {
            Some(Reader::Client(reply)) => {
                let _ = reply.send(());
            }
            Some(Reader::Lease { lease, renew, reply }) => {
                let _ = reply.send(match self.lease_response(lease, renew, now) {
                    LeaseReply::Seconds(seconds) => Ok(seconds),
                    LeaseReply::NotFound => Err(LeaseError::NotFound),
                    LeaseReply::NotLeader => Err(LeaseError::NoLeader),
                });
            }
            Some(Reader::PeerLease { lease, renew, peer, request }) => {
                let response = self.lease_response(lease, renew, now);
                self.links.send(peer, &Frame::LeaseReply { request, response });
            }
            None => {}
        }
    }

    fn lease_response(&mut self, lease: LeaseId, renew: bool, now: u64) -> LeaseReply {
        let Some(lessor) = self.replica.lessor() else { return LeaseReply::NotLeader };
        let seconds = if renew { self.replica.renew(lease, now) } else { lessor.remaining(lease, now) };
        seconds.map_or(LeaseReply::NotFound, LeaseReply::Seconds)
    }

    fn stream(&self, stream: Stream) {
        let Stream { to, message, state } = stream;
        let (identity, urls) = (self.links.identity().clone(), self.links.urls(to));
        let internal = self.internal.clone();
        let task = async move {
            tracing::info!(
                to = format!("{to:x}"),
                index = state.applied_index(),
                "streaming a snapshot to a member that fell behind"
            );
            let sent = stream_snapshot(identity, to, urls, state, message).await;
            if let Err(error) = &sent {
                tracing::warn!(to = format!("{to:x}"), %error, "failed to send a snapshot");
            }
            let _ = internal.send(Internal::SnapshotSent { to, arrived: sent.is_ok() }).await;
        };
        tokio::spawn(task.in_current_span());
    }

    fn follow_group(&mut self) {
        let group = self.replica.member().group();
        let same = self.group.borrow().members().eq(group.members());
        if !same {
            self.links.follow(group);
            self.group.send_replace(group.clone());
        }
    }

    fn checkpoint(&mut self, state: &State) {
        let due = self.replica.log_bytes() >= self.config.checkpoint_bytes.max(state.size_bytes());
        if !due || self.checkpointing {
            return;
        }
        self.checkpointing = true;
        let (meta, state) = self.replica.checkpoint();
        let (disk, value_file, internal) = (self.disk.clone(), self.value_file.clone(), self.internal.clone());
        tokio::task::spawn_blocking(move || {
            let result = checkpoint::write(&disk, &meta, &state);
            // Writing the checkpoint has read every value.
            value_file.trim();
            let _ = internal.blocking_send(Internal::Checkpointed { index: meta.index, result });
        });
    }

    fn publish(&self) {
        let member = self.replica.member();
        let status = member.status();
        let is_learner = member.group().member(self.config.id).is_some_and(|peer| peer.learner);
        self.status.send_replace(NodeStatus {
            leader: status.leader,
            term: status.term,
            role: status.role,
            commit: status.commit,
            applied: status.handed_out,
            is_learner,
            no_space: self.replica.free_space() != FreeSpace::Ample,
            disk_bytes: self.stats.log_bytes,
            disk: self.stats,
            leader_changes: self.leader_changes,
        });
    }
}

/// Yields once, so that requests of other ready tasks share one append and one sync. Never waits if there are none.
async fn gather(requests: &mut mpsc::Receiver<Request>, batch: &mut Vec<Request>) {
    tokio::task::yield_now().await;
    while batch.len() < BATCH
        && let Ok(request) = requests.try_recv()
    {
        batch.push(request);
    }
}

fn initial_status() -> NodeStatus {
    NodeStatus {
        leader: 0,
        term: 0,
        role: Role::Follower,
        commit: 0,
        applied: 0,
        is_learner: false,
        no_space: false,
        disk_bytes: 0,
        disk: DiskStats::default(),
        leader_changes: 0,
    }
}
