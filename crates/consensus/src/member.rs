//! Raft member: inputs and their effects.

mod effects;
mod election;
mod guard;

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use raft::eraftpb::{self, MessageType};
use raft::{Config as RaftConfig, RawNode, SnapshotStatus, StateRole};

use crate::change::{Change, ChangeError};
use crate::entry::{Entry, HardState, Payload, RequestId};
use crate::group::Group;
use crate::message::{Message, ProposeError};
use crate::storage::MemoryLog;

#[derive(Clone, Debug)]
pub struct Config {
    /// The member's ID, never 0.
    pub id: u64,
    /// Ticks between a leader's heartbeats.
    pub heartbeat_ticks: usize,
    /// Ticks without a leader until an election; the actual wait is between this and 1.5 times this.
    pub election_ticks: usize,
    /// Seed of the election waits, which must differ between members and starts.
    pub seed: u64,
    /// The number of this start of the member, durable before the member sends messages.
    pub boot: u64,
    /// Maximum size of entries per message.
    pub message_bytes_max: u64,
    /// Maximum size of proposed and uncommitted entries; further proposals are rejected.
    pub uncommitted_bytes_max: u64,
}

/// The state of a member recovered from disk.
#[derive(Clone, Debug, Default)]
pub struct RecoveredState {
    /// The newest checkpoint; index 0 for a new member that waits for a snapshot.
    pub snapshot: SnapshotMeta,
    /// The log entries in order; some may be older than the checkpoint.
    pub entries: Vec<Entry>,
    pub hard_state: HardState,
}

/// The position in the log of a state.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SnapshotMeta {
    /// The last included entry.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The group at that entry.
    pub group: Group,
}

/// The payload of the proposed entry.
pub type Proposal = Payload;

/// A message that no correct peer sends, or that contradicts this member's disk.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fault {
    /// The leader knows that this member has stored more than its log contains.
    #[error(
        "member {from} relies on entries up to {expected}, but the local log ends at {last}: this member's disk has lost entries that \
         it had acknowledged; remove the member from the cluster and add it again with an empty data directory"
    )]
    LogLost {
        /// The sender of the message.
        from: u64,
        /// The index that the sender relies on.
        expected: u64,
        /// The last index of the local log.
        last: u64,
    },
    /// The message is invalid and was dropped.
    #[error("member {from} sent an invalid message: {what}")]
    Nonsense {
        /// The sender of the message.
        from: u64,
        what: &'static str,
    },
}

/// The Raft role of a member.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// Follows a leader, or waits for one.
    Follower,
    Candidate,
    Leader,
}

/// The observable state of a member.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Status {
    pub term: u64,
    /// The leader's ID, or 0.
    pub leader: u64,
    pub role: Role,
    pub commit: u64,
    /// The last entry returned for application.
    pub handed_out: u64,
    /// The last entry of the log.
    pub last: u64,
}

/// Data that must be durable, in this order, before [`Member::persisted`] is called with its number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Persist {
    /// Increasing.
    pub number: u64,
    /// A received snapshot that replaces state, checkpoint and log.
    pub install: Option<SnapshotMeta>,
    /// Entries to append; they replace all entries from the first index on.
    pub entries: Vec<Entry>,
    /// The hard state, if it changed.
    pub hard_state: Option<HardState>,
    /// Whether the write needs a sync and a report. Otherwise it is a hint that may be written with the next one.
    pub sync: bool,
}

/// A committed entry, in order of index.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CommittedEntry {
    /// Only the index must be recorded.
    Empty {
        /// The log index.
        index: u64,
    },
    /// A command to apply.
    Command {
        index: u64,
        /// The ID of the proposal.
        request: RequestId,
        data: Bytes,
    },
    /// A command that must not be applied: it, or a later one of its origin, was applied before.
    Overtaken {
        index: u64,
        /// The ID of the proposal.
        request: RequestId,
    },
    /// A membership change, already in effect unless it failed.
    Changed {
        index: u64,
        /// The ID of the proposal.
        request: RequestId,
        change: Change,
        result: Result<(), ChangeError>,
    },
}

/// A snapshot to stream to a lagging member: the state after everything committed in the same effects.
#[derive(Clone, Debug, PartialEq)]
pub struct SendSnapshot {
    pub to: u64,
    /// The message that ends the stream.
    pub message: Message,
}

/// The actions that the caller must execute.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    pub persist: Option<Persist>,
    /// To be sent immediately.
    pub send: Vec<(u64, Message)>,
    /// To be applied in order, before the snapshots below are taken.
    pub committed: Vec<CommittedEntry>,
    /// To be streamed; each ends with [`Member::snapshot_sent`].
    pub snapshots: Vec<SendSnapshot>,
    /// Reads by ID, each with the index that must be applied first.
    pub reads: Vec<(u64, u64)>,
    /// Proposals of this member that are in no log.
    pub rejected: Vec<(RequestId, ProposeError)>,
    /// The new leader and role, if they changed.
    pub changed: Option<Status>,
    /// Set once this member has been removed from the cluster.
    pub removed: bool,
}

/// A member of a cluster.
pub struct Member {
    config: Config,
    raft: RawNode<MemoryLog>,
    group: Group,
    /// Snapshots that raft has not accepted or rejected yet.
    offered: Vec<SnapshotMeta>,
    /// Messages that wait for the disk, by the number of the write.
    pending_messages: VecDeque<(u64, Vec<(u64, Message)>)>,
    /// Writes not reported as done yet, with the term and vote they make durable.
    writing: VecDeque<(u64, Option<HardState>)>,
    durable: HardState,
    /// The number of the write that installs a snapshot, while in progress.
    installing: Option<u64>,
    /// The last entry returned for application, with its term.
    handed_out: (u64, u64),
    applied: u64,
    election: election::Draws,
    /// A campaign was requested while too many entries are not applied.
    campaign_requested: bool,
    outbox: Effects,
    seen: Option<Status>,
    removed: bool,
}

impl Member {
    /// Returns a member with the state recovered from disk.
    ///
    /// # Panics
    ///
    /// If the configuration is inconsistent or the entries are not contiguous.
    pub fn new(config: Config, recovered: RecoveredState) -> Self {
        let RecoveredState { snapshot, entries, hard_state } = recovered;
        let conf_state = snapshot.group.conf_state();
        let last = entries.last().map_or(0, |entry| entry.index).max(snapshot.index);
        let mut raft_hard_state = eraftpb::HardState::default();
        raft_hard_state.term = hard_state.term.max(snapshot.term);
        raft_hard_state.vote = if raft_hard_state.term == hard_state.term { hard_state.vote } else { 0 };
        raft_hard_state.commit = hard_state.commit.clamp(snapshot.index, last);
        let (base, entries) = base_of(&snapshot, entries);
        let mut log = MemoryLog::new(raft_hard_state, conf_state.clone(), base, entries);
        log.set_snapshot(snapshot.index, snapshot.term, conf_state);
        let raft_config = raft_config(&config, snapshot.index);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raft = RawNode::new(&raft_config, log, &logger).expect("the configuration is consistent");
        let election = election::Draws::new(&config);
        let mut member = Self {
            raft,
            group: snapshot.group,
            offered: Vec::new(),
            pending_messages: VecDeque::new(),
            writing: VecDeque::new(),
            durable: hard_state,
            installing: None,
            handed_out: (snapshot.index, snapshot.term),
            applied: snapshot.index,
            election,
            campaign_requested: false,
            outbox: Effects::default(),
            seen: None,
            removed: false,
            config,
        };
        member.choose_election_timeout(false);
        member
    }

    /// Advances the clock of elections and heartbeats by one tick.
    pub fn tick(&mut self) {
        if self.removed || !self.may_campaign_now() {
            return;
        }
        let timed_out = self.raft.tick() && self.raft.raft.state != StateRole::Leader;
        self.choose_election_timeout(timed_out);
    }

    /// Starts an election immediately; a sole voter need not wait for the timeout. With many entries to apply, the
    /// election starts after they are applied.
    pub fn campaign(&mut self) {
        if self.removed {
            return;
        }
        self.campaign_requested = self.has_long_backlog();
        if self.may_campaign_now() {
            let _ = self.raft.campaign();
            self.choose_election_timeout(true);
        }
    }

    /// Processes a message of a peer.
    pub fn message(&mut self, from: u64, message: Message) -> Result<(), Fault> {
        if self.removed {
            return Ok(());
        }
        match message {
            Message::Raft(mut message) => {
                self.guard(from, &message.0)?;
                if self.correct_rejection(&mut message.0) {
                    self.step(message.0);
                }
            }
            Message::Snapshot(message, group) => {
                self.guard(from, &message.0)?;
                let (index, term) = message.snapshot_position();
                self.offered.push(SnapshotMeta { index, term, group });
                self.step(message.0);
            }
            Message::Forward(proposals) => {
                let rejected = self.propose_here(proposals);
                if !rejected.is_empty() {
                    self.outbox.send.push((from, Message::Rejected(rejected)));
                }
            }
            Message::Rejected(rejections) => {
                let own = rejections.into_iter().filter(|(request, _)| request.origin == self.config.id);
                self.outbox.rejected.extend(own);
            }
        }
        Ok(())
    }

    /// Proposes entries: a leader appends them, a follower forwards them to the leader. Each is returned in
    /// [`Effects::committed`] or [`Effects::rejected`], or never if a message is lost.
    pub fn propose(&mut self, proposals: Vec<Proposal>) {
        let leader = self.raft.raft.leader_id;
        if self.is_leader() || leader == raft::INVALID_ID || self.removed {
            let rejected = self.propose_here(proposals);
            self.outbox.rejected.extend(rejected);
        } else {
            self.outbox.send.push((leader, Message::Forward(proposals)));
        }
    }

    /// Requests the index from which a read started now is linearizable. [`Effects::reads`] contains the response.
    /// There is none without a leader or if a message is lost: repeat the request with another ID.
    pub fn read(&mut self, id: u64) {
        if !self.removed {
            let mut context = BytesMut::with_capacity(24);
            context.put_u64_le(self.config.id);
            context.put_u64_le(self.config.boot);
            context.put_u64_le(id);
            self.raft.read_index(context.to_vec());
        }
    }

    /// Reports that everything up to this number is durable.
    pub fn persisted(&mut self, number: u64) {
        while let Some((oldest, hard_state)) = self.writing.front() {
            if *oldest > number {
                break;
            }
            self.durable = hard_state.unwrap_or(self.durable);
            self.writing.pop_front();
        }
        if self.installing.is_some_and(|installing| installing <= number) {
            self.installing = None;
        }
        if !self.removed {
            self.raft.on_persist_ready(number);
            self.report_applied();
        }
        while self.pending_messages.front().is_some_and(|(waits_for, _)| *waits_for <= number) {
            let (_, messages) = self.pending_messages.pop_front().expect("the first entry was checked above");
            self.outbox.send.extend(messages);
        }
    }

    /// Reports that the state machine has applied everything up to this index.
    pub fn applied(&mut self, index: u64) {
        self.applied = self.applied.max(index);
        if !self.removed {
            self.report_applied();
        }
    }

    /// Reports whether a snapshot arrived.
    pub fn snapshot_sent(&mut self, to: u64, arrived: bool) {
        let status = if arrived { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        if !self.removed {
            self.raft.report_snapshot(to, status);
        }
    }

    /// Reports that a message could not be delivered.
    pub fn unreachable(&mut self, peer: u64) {
        if !self.removed {
            self.raft.report_unreachable(peer);
        }
    }

    /// Transfers leadership to another voter, if this member is the leader.
    pub fn transfer(&mut self, to: u64) {
        if self.is_leader() && !self.removed {
            self.raft.transfer_leader(to);
        }
    }

    /// Drops applied entries from memory, the oldest first. Keeps `reserve` bytes of entries, or up to `limit` bytes if
    /// an active follower needs them.
    pub fn compact(&mut self, reserve: usize, limit: usize) {
        let applied = self.raft.raft.raft_log.applied;
        let needed = self.needed_by_followers();
        let may_drop =
            |index: u64, bytes: usize| index <= applied && bytes > reserve && (index <= needed || bytes > limit);
        self.raft.mut_store().compact(may_drop);
    }

    /// Whether this member needs no ticks: it was removed, or it is the leader and the only member.
    pub fn is_idle(&self) -> bool {
        self.removed
            || (self.is_leader() && self.group.is_sole_voter(self.config.id) && self.group.members().count() == 1)
    }

    /// Whether a read is linearizable without a quorum round. This requires a sole voter that is the leader and has
    /// returned an entry of its own term for application.
    pub fn decides_alone(&self) -> bool {
        let in_current_term = self.handed_out.1 == self.raft.raft.term;
        in_current_term && !self.removed && self.is_leader() && self.group.is_sole_voter(self.config.id)
    }

    /// Returns the group as of the last entry returned for application.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Returns the position of a state that has applied everything returned so far.
    pub fn snapshot_meta(&self) -> SnapshotMeta {
        SnapshotMeta { index: self.handed_out.0, term: self.handed_out.1, group: self.group.clone() }
    }

    /// Returns the size of the entries in memory.
    pub fn log_bytes(&self) -> usize {
        self.raft.store().bytes()
    }

    /// Returns the best next leader: of the other, recently active voters that are fit, the one that acknowledged the
    /// most entries.
    pub fn successor(&self, is_fit: impl Fn(u64) -> bool) -> Option<u64> {
        let progress = self.raft.raft.prs();
        let voter = |id: u64| self.group.member(id).is_some_and(|peer| !peer.learner);
        let others = progress
            .iter()
            .filter(|(id, seen)| **id != self.config.id && voter(**id) && seen.recent_active && is_fit(**id));
        others.max_by_key(|(id, seen)| (seen.matched, **id)).map(|(id, _)| *id)
    }

    pub fn status(&self) -> Status {
        let raft = &self.raft.raft;
        let role = match raft.state {
            StateRole::Follower => Role::Follower,
            StateRole::PreCandidate | StateRole::Candidate => Role::Candidate,
            StateRole::Leader => Role::Leader,
        };
        Status {
            term: raft.term,
            leader: raft.leader_id,
            role,
            commit: raft.raft_log.committed,
            handed_out: self.handed_out.0,
            last: raft.raft_log.last_index(),
        }
    }

    fn is_leader(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    /// Reports applied entries to raft, which accepts only entries that are durable here.
    fn report_applied(&mut self) {
        let log = &self.raft.raft.raft_log;
        let index = self.applied.min(log.committed).min(log.persisted);
        if index > log.applied {
            self.raft.advance_apply_to(index);
            if self.campaign_requested && !self.has_long_backlog() && self.raft.raft.leader_id == raft::INVALID_ID {
                self.campaign();
            }
        }
    }

    fn step(&mut self, message: eraftpb::Message) {
        // An error means that raft ignored the message, which is allowed.
        let _ = self.raft.step(message);
        self.choose_election_timeout(false);
    }

    /// Appends proposals as leader and returns the rejected ones.
    fn propose_here(&mut self, proposals: Vec<Proposal>) -> Vec<(RequestId, ProposeError)> {
        let mut rejected = Vec::new();
        let mut entries = Vec::with_capacity(proposals.len());
        let mut requests = Vec::with_capacity(proposals.len());
        for proposal in proposals {
            let Some(request) = proposal.request() else { continue };
            if self.must_hand_over(&proposal) {
                rejected.push((request, ProposeError::Transferring));
                continue;
            }
            match self.check_proposal(&proposal, &entries) {
                Err(reason) => rejected.push((request, reason)),
                Ok(()) => {
                    entries.push(proposal.into_raft());
                    requests.push(request);
                }
            }
        }
        if entries.is_empty() {
            return rejected;
        }
        let mut message = eraftpb::Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.config.id;
        message.set_entries(entries.into());
        if self.raft.step(message).is_err() {
            let transferring = self.raft.raft.lead_transferee.is_some();
            let reason = if transferring { ProposeError::Transferring } else { ProposeError::Overloaded };
            rejected.extend(requests.into_iter().map(|request| (request, reason.clone())));
        }
        rejected
    }

    /// Transfers leadership before the leader is removed. A leader that removed itself could stop before the others
    /// learn of it, and the other one of two members would wait for it forever. The next leader removes it.
    fn must_hand_over(&mut self, proposal: &Proposal) -> bool {
        let leaves = matches!(proposal.change(), Some(Change::Remove { id }) if *id == self.config.id);
        if !leaves || !self.is_leader() || self.group.is_sole_voter(self.config.id) {
            return false;
        }
        if let Some(successor) = self.successor(|_| true) {
            self.transfer(successor);
        }
        true
    }

    fn check_proposal(&self, proposal: &Proposal, before: &[eraftpb::Entry]) -> Result<(), ProposeError> {
        if self.removed {
            return Err(ProposeError::Stopped);
        }
        if !self.is_leader() {
            return Err(ProposeError::NoLeader);
        }
        let Some(change) = proposal.change() else { return Ok(()) };
        self.group.check(change).map_err(ProposeError::Change)?;
        // Raft would replace a second change by an empty entry without reporting it.
        let is_change = |entry: &eraftpb::Entry| entry.get_entry_type() == eraftpb::EntryType::EntryConfChangeV2;
        let pending = self.raft.raft.has_pending_conf() || before.iter().any(is_change);
        if pending && change.to_raft().is_some() {
            return Err(ProposeError::Change(ChangeError::InProgress));
        }
        match change {
            Change::Promote { id } if !self.is_in_sync(*id) => Err(ProposeError::LearnerNotReady),
            _ => Ok(()),
        }
    }

    /// Applies etcd's rule: a learner is in sync if it has 90 % of the committed entries.
    fn is_in_sync(&self, learner: u64) -> bool {
        let commit = self.raft.raft.raft_log.committed;
        self.raft
            .raft
            .prs()
            .get(learner)
            .is_some_and(|seen| seen.matched.saturating_mul(10) >= commit.saturating_mul(9))
    }

    /// Returns the last entry that no active follower needs.
    fn needed_by_followers(&self) -> u64 {
        if !self.is_leader() {
            return u64::MAX;
        }
        let progress = self.raft.raft.prs().iter();
        let active = progress.filter(|(id, seen)| **id != self.config.id && seen.recent_active);
        active.map(|(_, seen)| seen.matched.max(seen.pending_snapshot)).min().unwrap_or(u64::MAX)
    }
}

/// Returns index and term of the entry before the log in memory, and the entries after it. Entries before the
/// checkpoint are kept for followers.
fn base_of(snapshot: &SnapshotMeta, entries: Vec<Entry>) -> ((u64, u64), VecDeque<eraftpb::Entry>) {
    let mut entries = VecDeque::from(entries);
    let adjacent = entries.iter().zip(entries.iter().skip(1)).all(|(one, next)| next.index == one.index + 1);
    assert!(adjacent, "the log reader returns entries without a gap");
    let base = match entries.front() {
        Some(first) if first.index <= snapshot.index => {
            let base = (first.index, first.term);
            entries.pop_front();
            base
        }
        Some(first) => {
            assert_eq!(first.index, snapshot.index + 1, "the log continues where the checkpoint ends");
            (snapshot.index, snapshot.term)
        }
        None => (snapshot.index, snapshot.term),
    };
    (base, entries.into_iter().map(Entry::into_raft).collect())
}

fn raft_config(config: &Config, applied: u64) -> RaftConfig {
    RaftConfig {
        id: config.id,
        election_tick: config.election_ticks,
        min_election_tick: config.election_ticks,
        max_election_tick: election::ticks_end(config.election_ticks),
        heartbeat_tick: config.heartbeat_ticks,
        applied,
        max_size_per_msg: config.message_bytes_max,
        max_inflight_msgs: 64,
        check_quorum: true,
        pre_vote: true,
        batch_append: true,
        max_uncommitted_size: config.uncommitted_bytes_max,
        max_committed_size_per_ready: 16 << 20,
        ..RaftConfig::default()
    }
}

#[cfg(test)]
mod tests;
