//! Replica of the store as a step machine: consensus, applied state and pending requests, without I/O or a clock.

mod free_space;
mod reads;

use std::sync::{Arc, RwLock};

use bytes::Bytes;
use consensus::{
    ChangeError, CommittedEntry, Config, Effects, Fault, Member, Message, Payload, Persist, Proposal, ProposeError,
    RecoveredState, RequestId, Role, SnapshotMeta, Status,
};
use mvcc::{Caller, Command, Lessor, Outcome, State};

pub use self::free_space::FreeSpace;
use self::free_space::Space;
use self::reads::Reads;
use crate::sessions::SessionChange;
use crate::value_file::ValueFile;

/// The result of a proposal.
#[derive(Clone, Debug)]
pub enum ProposalResult {
    Outcome(Outcome),
    /// A membership change was decided.
    Changed(Result<(), ChangeError>),
}

/// A write to disk; writes are numbered and must be executed in order.
#[derive(Debug)]
pub struct Write {
    pub persist: Persist,
    /// The state of a received snapshot; its checkpoint must be durable before the log is reset.
    pub installed: Option<State>,
}

/// A snapshot to send.
#[derive(Debug)]
pub struct Stream {
    pub to: u64,
    /// The message that ends the stream.
    pub message: Message,
    pub state: State,
}

/// The actions that the caller must execute.
#[derive(Debug, Default)]
pub struct Step {
    pub write: Option<Write>,
    pub send: Vec<(u64, Message)>,
    pub streams: Vec<Stream>,
    /// Decided proposals of this replica, by sequence.
    pub responses: Vec<(u64, Result<ProposalResult, ProposeError>)>,
    /// Reads that can now be served from the state.
    pub reads: Vec<u64>,
    /// The new status, if it changed.
    pub changed: Option<Status>,
    /// Applied entries, in order.
    pub applied: Vec<CommittedEntry>,
    /// Changes of user sessions by the entries, in order.
    pub sessions: Vec<SessionChange>,
    /// Whether a snapshot replaced the state.
    pub installed: bool,
    /// Whether this member was removed from the cluster.
    pub removed: bool,
}

/// A replica failed permanently.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// A newer version wrote an entry that this one cannot decode.
    #[error(
        "entry {index} of the log cannot be read: it was written by a newer version; start this member with that version"
    )]
    Unreadable {
        /// Log index of the entry.
        index: u64,
    },
    /// A peer's message proved that this member has lost its log.
    #[error(transparent)]
    Fault(#[from] Fault),
}

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Extension of every lease when this member becomes leader: clients could not renew during the election.
    pub lease_extension_ms: u64,
    /// Size of applied entries kept in memory for followers that lag slightly.
    pub memory_log_bytes: usize,
    /// Maximum size kept while a follower receives a snapshot, so that the log continues where the snapshot ends.
    pub memory_log_bytes_max: usize,
}

pub struct Replica {
    id: u64,
    member: Member,
    state: Arc<RwLock<State>>,
    /// Lease deadlines, while this member is the leader.
    lessor: Option<Lessor>,
    next_sequence: u64,
    offered: Vec<(u64, State)>,
    reads: Reads,
    space: Space,
    value_file: ValueFile,
    log_bytes: u64,
    options: Options,
}

/// Bits for the sequences of one start of a member: a trillion sequences.
const SEQUENCE_BITS: u32 = 40;
/// Maximum number of leases revoked at a time.
const EXPIRED_MAX: usize = 256;

impl Default for Options {
    fn default() -> Self {
        Self { lease_extension_ms: 1000, memory_log_bytes: 4 << 20, memory_log_bytes_max: 256 << 20 }
    }
}

impl Replica {
    /// Returns a replica with the state recovered from disk.
    pub fn new(config: Config, recovered: RecoveredState, state: State, options: Options) -> Self {
        // Counted across starts; otherwise a member that is started often would never write a checkpoint.
        let log_bytes = recovered.entries.iter().map(|entry| entry.size() as u64).sum();
        Self {
            id: config.id,
            next_sequence: config.boot << SEQUENCE_BITS,
            member: Member::new(config, recovered),
            state: Arc::new(RwLock::new(state)),
            lessor: None,
            offered: Vec::new(),
            reads: Reads::default(),
            space: Space::default(),
            value_file: ValueFile::memory(),
            log_bytes,
            options,
        }
    }

    /// Stores values in a value file.
    #[must_use]
    pub fn with_value_file(self, value_file: ValueFile) -> Self {
        Self { value_file, ..self }
    }

    /// Advances the election clock by one tick.
    pub fn tick(&mut self, now_ms: u64) {
        self.member.tick();
        self.reads.tick(&mut self.member);
        self.expire(now_ms);
        self.propose_alarms();
    }

    /// Revokes expired leases, if this member is the leader.
    pub fn expire(&mut self, now_ms: u64) {
        let is_authenticating = self.view(|state| state.directory().is_enabled());
        let Some(lessor) = &mut self.lessor else { return };
        let revoke = |id| {
            let command = Command::LeaseRevoke { id };
            // A command without caller, which older versions can decode, would be anonymous.
            if is_authenticating { command.authorized(Caller::Cluster) } else { command }
        };
        let mut commands: Vec<Command> = lessor.expired(now_ms, EXPIRED_MAX).into_iter().map(revoke).collect();
        commands.extend(lessor.checkpoints(now_ms));
        for command in commands {
            self.propose(command.encode());
        }
    }

    /// Starts an election immediately.
    pub fn campaign(&mut self) {
        self.member.campaign();
    }

    /// Processes a message of a peer.
    pub fn message(&mut self, from: u64, message: Message) -> Result<(), ReplicaError> {
        // Without space, more entries would only accumulate in memory; the leader sends them again.
        if self.free_space() == FreeSpace::None && message.is_vital() {
            return Ok(());
        }
        // An invalid message is dropped as if lost in the network; a lost log is fatal.
        match self.member.message(from, message) {
            Err(fault @ Fault::LogLost { .. }) => Err(fault.into()),
            Err(Fault::Nonsense { .. }) | Ok(()) => Ok(()),
        }
    }

    /// Processes a snapshot of a peer with its streamed state.
    pub fn snapshot(&mut self, from: u64, message: Message, state: State) -> Result<(), ReplicaError> {
        self.offered.push((state.applied_index(), state));
        self.message(from, message)
    }

    /// Proposes an encoded command. Returns the sequence of its response.
    pub fn propose(&mut self, command: Bytes) -> u64 {
        let sequence = self.reserve();
        self.propose_all(vec![(sequence, command)]);
        sequence
    }

    /// Reserves a sequence for [`Replica::propose_all`].
    pub fn reserve(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence
    }

    /// Proposes commands in order of their reserved sequences.
    pub fn propose_all(&mut self, commands: Vec<(u64, Bytes)>) {
        let proposal = |(sequence, data)| Payload::Command { request: RequestId { origin: self.id, sequence }, data };
        let proposals: Vec<Proposal> = commands.into_iter().map(proposal).collect();
        self.member.propose(proposals);
    }

    /// Proposes a membership change under a reserved sequence.
    pub fn change(&mut self, sequence: u64, change: consensus::Change) {
        let request = RequestId { origin: self.id, sequence };
        self.member.propose(vec![Payload::Change { request, change }]);
    }

    /// Requests a linearizable read; [`Step::reads`] returns the token.
    pub fn read(&mut self, token: u64) {
        self.reads.add(token, &mut self.member);
    }

    /// Whether reading the state immediately is linearizable. Valid only if no step is pending.
    pub fn can_read_locally(&self) -> bool {
        self.member.decides_alone()
    }

    /// Reports that everything up to this write number is durable.
    pub fn persisted(&mut self, number: u64) {
        self.member.persisted(number);
    }

    /// Reports whether a snapshot arrived.
    pub fn snapshot_sent(&mut self, to: u64, arrived: bool) {
        self.member.snapshot_sent(to, arrived);
    }

    /// Reports that a peer is unreachable.
    pub fn unreachable(&mut self, peer: u64) {
        self.member.unreachable(peer);
    }

    /// Reports that a peer closed its connection to this member.
    pub fn peer_disconnected(&mut self, peer: u64) {
        self.member.peer_disconnected(peer);
    }

    /// Transfers leadership.
    pub fn transfer(&mut self, to: u64) {
        self.member.transfer(to);
    }

    /// Renews a lease if this member is the leader and returns its TTL in seconds. Valid only after a read has
    /// confirmed the leadership.
    pub fn renew(&mut self, lease: mvcc::LeaseId, now_ms: u64) -> Option<i64> {
        let lessor = self.lessor.as_mut()?;
        let checkpoint = lessor.checkpoint_of_renewal(lease);
        let seconds = lessor.renew(lease, now_ms);
        if let Some(command) = checkpoint {
            self.propose(command.encode());
        }
        seconds
    }

    /// Returns the lease deadlines, while this member is the leader.
    pub fn lessor(&self) -> Option<&Lessor> {
        self.lessor.as_ref()
    }

    pub fn state(&self) -> Arc<RwLock<State>> {
        self.state.clone()
    }

    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Returns the bytes written to the log since the last checkpoint.
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Returns the state for a checkpoint. Valid only if no step is pending.
    pub fn checkpoint(&mut self) -> (SnapshotMeta, State) {
        self.log_bytes = 0;
        (self.member.snapshot_meta(), self.view(State::clone))
    }

    /// Returns the next actions, if there are any.
    pub fn step(&mut self, now_ms: u64) -> Result<Option<Step>, ReplicaError> {
        let Some(effects) = self.member.effects() else {
            // Reads that waited for an entry that is now applied, or were requested again.
            let reads = self.reads.take_ready(self.view(State::applied_index));
            return Ok((!reads.is_empty()).then(|| Step { reads, ..Step::default() }));
        };
        let Effects { persist, send, committed, snapshots, reads, rejected, changed, removed } = effects;
        let mut step = Step { send, removed, ..Step::default() };
        if let Some(status) = &changed {
            self.stand(status, now_ms);
        }
        step.changed = changed;
        step.write = persist.map(|persist| self.write(persist));
        step.installed = step.write.as_ref().is_some_and(|write| write.installed.is_some());
        self.apply(&committed, now_ms, &mut step)?;
        step.applied = committed;
        step.responses.extend(rejected.into_iter().map(|(request, reason)| (request.sequence, Err(reason))));
        for (id, index) in reads {
            self.reads.confirmed(id, index, &mut self.member);
        }
        step.reads = self.reads.take_ready(self.view(State::applied_index));
        let stream = |snapshot: consensus::SendSnapshot| Stream {
            to: snapshot.to,
            message: snapshot.message,
            state: self.view(State::clone),
        };
        step.streams = snapshots.into_iter().map(stream).collect();
        self.member.compact(self.options.memory_log_bytes, self.options.memory_log_bytes_max);
        Ok(Some(step))
    }

    /// Removes a part of the compacted history. Returns whether there is more. Readers wait only for this part.
    pub fn prune(&mut self, changes_max: usize) -> bool {
        let is_forgetting = self.view(State::is_forgetting);
        is_forgetting && self.state.write().expect("no holder of the state panics").prune(changes_max)
    }

    fn view<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        read(&self.state.read().expect("no holder of the state panics"))
    }

    fn stand(&mut self, status: &Status, now_ms: u64) {
        let leads = status.role == Role::Leader;
        if !leads {
            self.lessor = None;
        } else if self.lessor.is_none() {
            let extension = self.options.lease_extension_ms;
            self.lessor = Some(self.view(|state| Lessor::promote(state, now_ms, extension)));
        }
        self.reads.restart_round(&mut self.member);
    }

    fn write(&mut self, persist: Persist) -> Write {
        let bytes: usize = persist.entries.iter().map(consensus::Entry::size).sum();
        self.log_bytes += bytes as u64;
        let installed = persist.install.as_ref().map(|meta| {
            let chosen = self.offered.iter().position(|(index, _)| *index == meta.index);
            let (_, state) = self.offered.swap_remove(chosen.expect("a snapshot is offered with its state"));
            *self.state.write().expect("no holder of the state panics") = state.clone();
            self.space.recheck();
            state
        });
        self.offered.clear();
        Write { persist, installed }
    }

    /// Applies entries. The state is locked per entry, so readers wait for one entry, not for all.
    fn apply(&mut self, committed: &[CommittedEntry], now_ms: u64, step: &mut Step) -> Result<(), ReplicaError> {
        for entry in committed {
            let (index, request, decided) = match entry {
                CommittedEntry::Empty { index } => (*index, None, None),
                CommittedEntry::Overtaken { index, request } => {
                    (*index, Some(request), Some(Err(ProposeError::Superseded)))
                }
                CommittedEntry::Changed { index, request, result, .. } => {
                    (*index, Some(request), Some(Ok(ProposalResult::Changed(result.clone()))))
                }
                CommittedEntry::Command { index, request, .. } => (*index, Some(request), None),
            };
            let outcome = if let CommittedEntry::Command { data, .. } = entry {
                let (outcome, session) = self.apply_command(index, data, now_ms)?;
                step.sessions.extend(session);
                Some(outcome)
            } else {
                self.state.write().expect("no holder of the state panics").set_applied_index(index);
                None
            };
            self.member.applied(index);
            let response = decided.or(outcome.map(|outcome| Ok(ProposalResult::Outcome(outcome))));
            if let (Some(request), Some(response)) = (request, response)
                && request.origin == self.id
            {
                step.responses.push((request.sequence, response));
            }
        }
        Ok(())
    }

    fn apply_command(
        &mut self,
        index: u64,
        data: &Bytes,
        now_ms: u64,
    ) -> Result<(Outcome, Option<SessionChange>), ReplicaError> {
        let command = Command::decode(data).map_err(|_| ReplicaError::Unreadable { index })?;
        let mut state = self.state.write().expect("no holder of the state panics");
        let outcome = state.apply_to(index, &command, &mut |value| self.value_file.store(value));
        drop(state);
        if matches!(command.split().1, Command::Alarm { .. }) {
            self.space.recheck();
        }
        if let Some(lessor) = &mut self.lessor {
            lessor.observe(&command, &outcome, now_ms);
        }
        let session = SessionChange::of(&command, &outcome);
        Ok((outcome, session))
    }
}
