//! One copy of the store as a step machine: consensus, the state it decides, and who waits for what. No I/O, no clock.

mod reads;
mod room;

use std::sync::{Arc, RwLock};

use bytes::Bytes;
use consensus::{
    ChangeError, Committed, Config, Effects, Fault, Member, Message, Payload, Persist, Proposal, ProposeError,
    Recovered, RequestId, Role, SnapshotMeta, Status,
};
use mvcc::{Caller, Command, Lessor, Outcome, State};

use self::reads::Reads;
pub use self::room::Room;
use self::room::Space;
use crate::sessions::SessionChange;
use crate::shelf::Shelf;

/// What a proposal came to.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A command was applied.
    Outcome(Outcome),
    /// A change of membership was decided.
    Changed(Result<(), ChangeError>),
}

/// Something to write, in the order of numbers.
#[derive(Debug)]
pub struct Write {
    /// The log's part.
    pub persist: Persist,
    /// The state that a received snapshot carried; its checkpoint must be durable before the log is reset.
    pub installed: Option<State>,
}

/// A snapshot to stream.
#[derive(Debug)]
pub struct Stream {
    /// To whom.
    pub to: u64,
    /// The message that ends the stream.
    pub message: Message,
    /// The state to stream.
    pub state: State,
}

/// What the shell has to do.
#[derive(Debug, Default)]
pub struct Step {
    /// To write.
    pub write: Option<Write>,
    /// To send.
    pub send: Vec<(u64, Message)>,
    /// To stream.
    pub streams: Vec<Stream>,
    /// Proposals of this replica that are decided, by sequence.
    pub answers: Vec<(u64, Result<Answer, ProposeError>)>,
    /// Reads that may now be answered from the state.
    pub reads: Vec<u64>,
    /// How the member stands, when that changed.
    pub changed: Option<Status>,
    /// The entries that were applied, in order.
    pub applied: Vec<Committed>,
    /// What the entries changed about the sessions of users, in order.
    pub sessions: Vec<SessionChange>,
    /// Whether a snapshot took the place of the state.
    pub installed: bool,
    /// Whether this member has left the cluster.
    pub removed: bool,
}

/// Why a replica cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// A newer member wrote what this one does not understand.
    #[error(
        "entry {index} of the log cannot be read: it was written by a newer version; start this member with that version"
    )]
    Unreadable {
        /// The entry.
        index: u64,
    },
    /// A peer proved that this member cannot go on.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// What a replica keeps for others.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Granted to every lease when this member comes to lead: clients could not renew during the election.
    pub lease_extension_ms: u64,
    /// Applied entries kept in memory for followers that lag a little.
    pub memory_log_bytes: usize,
    /// Kept for a follower that is receiving a snapshot, so that it finds the log where the snapshot ends.
    pub memory_log_bytes_max: usize,
}

/// One copy of the store.
pub struct Replica {
    id: u64,
    member: Member,
    state: Arc<RwLock<State>>,
    /// Deadlines of leases, while this member leads.
    lessor: Option<Lessor>,
    next_sequence: u64,
    offered: Vec<(u64, State)>,
    reads: Reads,
    space: Space,
    shelf: Shelf,
    log_bytes: u64,
    options: Options,
}

/// Sequences of one start of a member: a trillion of them.
const SEQUENCE_BITS: u32 = 40;
/// Leases ended in one go: the rest waits for the next.
const EXPIRED_MAX: usize = 256;

impl Default for Options {
    fn default() -> Self {
        Self { lease_extension_ms: 1000, memory_log_bytes: 4 << 20, memory_log_bytes_max: 256 << 20 }
    }
}

impl Replica {
    /// A replica that continues from a disk.
    pub fn new(config: Config, recovered: Recovered, state: State, options: Options) -> Self {
        // Counted on across starts, or a member that is started often would never write a checkpoint.
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
            shelf: Shelf::memory(),
            log_bytes,
            options,
        }
    }

    /// The same, whose values are put on a shelf.
    #[must_use]
    pub fn with_shelf(self, shelf: Shelf) -> Self {
        Self { shelf, ..self }
    }

    /// A tick of the clock that elections count in.
    pub fn tick(&mut self, now_ms: u64) {
        self.member.tick();
        self.reads.tick(&mut self.member);
        self.expire(now_ms);
        self.tell_space();
    }

    /// Ends the leases whose time is over, if this member leads.
    pub fn expire(&mut self, now_ms: u64) {
        let is_authenticating = self.view(|state| state.directory().is_enabled());
        let Some(lessor) = &mut self.lessor else { return };
        let revoke = |id| {
            let command = Command::LeaseRevoke { id };
            // A bare command, which members of older versions read, would be anonymous.
            if is_authenticating { command.authorized(Caller::Cluster) } else { command }
        };
        let mut commands: Vec<Command> = lessor.expired(now_ms, EXPIRED_MAX).into_iter().map(revoke).collect();
        commands.extend(lessor.checkpoints(now_ms));
        for command in commands {
            self.propose(command.encode());
        }
    }

    /// Stands for election at once.
    pub fn campaign(&mut self) {
        self.member.campaign();
    }

    /// A message of a peer.
    pub fn message(&mut self, from: u64, message: Message) -> Result<(), ReplicaError> {
        // Without any room more entries would only pile up in memory; the leader sends them again.
        if self.room() == Room::None && message.is_vital() {
            return Ok(());
        }
        // What makes no sense is dropped, as a network may drop it; a lost log is the end.
        match self.member.message(from, message) {
            Err(fault @ Fault::LogLost { .. }) => Err(fault.into()),
            Err(Fault::Nonsense { .. }) | Ok(()) => Ok(()),
        }
    }

    /// A snapshot of a peer, with the state that was streamed.
    pub fn snapshot(&mut self, from: u64, message: Message, state: State) -> Result<(), ReplicaError> {
        self.offered.push((state.applied_index(), state));
        self.message(from, message)
    }

    /// Proposes a command, encoded; the answer carries the sequence that is returned.
    pub fn propose(&mut self, command: Bytes) -> u64 {
        let sequence = self.reserve();
        self.propose_all(vec![(sequence, command)]);
        sequence
    }

    /// A sequence for a proposal that is made by [`Replica::propose_all`].
    pub fn reserve(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence
    }

    /// Proposes many commands at once, in order of their reserved sequences.
    pub fn propose_all(&mut self, commands: Vec<(u64, Bytes)>) {
        let proposal = |(sequence, data)| Payload::Command { request: RequestId { origin: self.id, sequence }, data };
        let proposals: Vec<Proposal> = commands.into_iter().map(proposal).collect();
        self.member.propose(proposals);
    }

    /// Proposes a change of membership under a reserved sequence.
    pub fn change(&mut self, sequence: u64, change: consensus::Change) {
        let request = RequestId { origin: self.id, sequence };
        self.member.propose(vec![Payload::Change { request, change }]);
    }

    /// Asks for a linearizable read; the token comes back in [`Step::reads`].
    pub fn read(&mut self, token: u64) {
        self.reads.add(token, &mut self.member);
    }

    /// Whether a read is linearizable that looks at the state at once. Only right when every step has been taken.
    pub fn reads_freely(&self) -> bool {
        self.member.decides_alone()
    }

    /// Everything up to this number is durable.
    pub fn persisted(&mut self, number: u64) {
        self.member.persisted(number);
    }

    /// A snapshot reached the other side, or did not.
    pub fn snapshot_sent(&mut self, to: u64, arrived: bool) {
        self.member.snapshot_sent(to, arrived);
    }

    /// A peer cannot be reached.
    pub fn unreachable(&mut self, peer: u64) {
        self.member.unreachable(peer);
    }

    /// A peer has closed its connection to this member.
    pub fn hung_up(&mut self, peer: u64) {
        self.member.hung_up(peer);
    }

    /// Hands leadership over.
    pub fn transfer(&mut self, to: u64) {
        self.member.transfer(to);
    }

    /// Renews a lease, if this member leads; the seconds it now has. Only sound after a read has confirmed that it leads.
    pub fn renew(&mut self, lease: mvcc::LeaseId, now_ms: u64) -> Option<i64> {
        let lessor = self.lessor.as_mut()?;
        let checkpoint = lessor.checkpoint_of_renewal(lease);
        let seconds = lessor.renew(lease, now_ms);
        if let Some(command) = checkpoint {
            self.propose(command.encode());
        }
        seconds
    }

    /// The deadlines of leases, while this member leads.
    pub fn lessor(&self) -> Option<&Lessor> {
        self.lessor.as_ref()
    }

    /// The state, for readers.
    pub fn state(&self) -> Arc<RwLock<State>> {
        self.state.clone()
    }

    /// The member.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Bytes written to the log since the last checkpoint was taken.
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Takes the state for a checkpoint. Only right when every step has been taken.
    pub fn checkpoint(&mut self) -> (SnapshotMeta, State) {
        self.log_bytes = 0;
        (self.member.snapshot_meta(), self.view(State::clone))
    }

    /// Takes the next thing to do.
    pub fn step(&mut self, now_ms: u64) -> Result<Option<Step>, ReplicaError> {
        let Some(effects) = self.member.effects() else {
            // Reads that waited for an entry that is applied by now, or were asked for again.
            let reads = self.reads.take_ready(self.view(State::applied_index));
            return Ok((!reads.is_empty()).then(|| Step { reads, ..Step::default() }));
        };
        let Effects { persist, send, committed, snapshots, reads, refused, changed, removed } = effects;
        let mut step = Step { send, removed, ..Step::default() };
        if let Some(status) = &changed {
            self.stand(status, now_ms);
        }
        step.changed = changed;
        step.write = persist.map(|persist| self.write(persist));
        step.installed = step.write.as_ref().is_some_and(|write| write.installed.is_some());
        self.apply(&committed, now_ms, &mut step)?;
        step.applied = committed;
        step.answers.extend(refused.into_iter().map(|(request, reason)| (request.sequence, Err(reason))));
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

    /// Forgets some of what a compaction made unreachable; whether there is more. Readers wait for this much, not for all.
    pub fn forget(&mut self, changes_max: usize) -> bool {
        let is_forgetting = self.view(State::is_forgetting);
        is_forgetting && self.state.write().expect("nobody panics while holding the state").forget(changes_max)
    }

    fn view<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        read(&self.state.read().expect("nobody panics while holding the state"))
    }

    fn stand(&mut self, status: &Status, now_ms: u64) {
        let leads = status.role == Role::Leader;
        if !leads {
            self.lessor = None;
        } else if self.lessor.is_none() {
            let extension = self.options.lease_extension_ms;
            self.lessor = Some(self.view(|state| Lessor::promote(state, now_ms, extension)));
        }
        self.reads.ask_again(&mut self.member);
    }

    fn write(&mut self, persist: Persist) -> Write {
        let bytes: usize = persist.entries.iter().map(consensus::Entry::size).sum();
        self.log_bytes += bytes as u64;
        let installed = persist.install.as_ref().map(|meta| {
            let chosen = self.offered.iter().position(|(index, _)| *index == meta.index);
            let (_, state) = self.offered.swap_remove(chosen.expect("a snapshot is offered with its state"));
            *self.state.write().expect("nobody panics while holding the state") = state.clone();
            self.space.look_again();
            state
        });
        self.offered.clear();
        Write { persist, installed }
    }

    /// One entry at a time has the state to itself: readers wait for one, not for all of them.
    fn apply(&mut self, committed: &[Committed], now_ms: u64, step: &mut Step) -> Result<(), ReplicaError> {
        for entry in committed {
            let (index, request, decided) = match entry {
                Committed::Empty { index } => (*index, None, None),
                Committed::Overtaken { index, request } => (*index, Some(request), Some(Err(ProposeError::Overtaken))),
                Committed::Changed { index, request, result, .. } => {
                    (*index, Some(request), Some(Ok(Answer::Changed(result.clone()))))
                }
                Committed::Command { index, request, .. } => (*index, Some(request), None),
            };
            let outcome = if let Committed::Command { data, .. } = entry {
                let (outcome, session) = self.apply_command(index, data, now_ms)?;
                step.sessions.extend(session);
                Some(outcome)
            } else {
                self.state.write().expect("nobody panics while holding the state").set_applied_index(index);
                None
            };
            self.member.applied(index);
            let answer = decided.or(outcome.map(|outcome| Ok(Answer::Outcome(outcome))));
            if let (Some(request), Some(answer)) = (request, answer)
                && request.origin == self.id
            {
                step.answers.push((request.sequence, answer));
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
        let mut state = self.state.write().expect("nobody panics while holding the state");
        let outcome = state.apply_to(index, &command, &mut |value| self.shelf.place(value));
        drop(state);
        if matches!(command.split().1, Command::Alarm { .. }) {
            self.space.look_again();
        }
        if let Some(lessor) = &mut self.lessor {
            lessor.observe(&command, &outcome, now_ms);
        }
        let session = SessionChange::of(&command, &outcome);
        Ok((outcome, session))
    }
}
