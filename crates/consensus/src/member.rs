//! The member: inputs, and the effects they have.

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
use crate::message::Message;
use crate::storage::MemoryLog;

/// How a member behaves; given at start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its identity, never 0.
    pub id: u64,
    /// Ticks between a leader's heartbeats.
    pub heartbeat_ticks: usize,
    /// Ticks without a leader until an election; the real wait is drawn between this and one and a half times this.
    pub election_ticks: usize,
    /// Where the draws of election waits start: different in every member and every start.
    pub seed: u64,
    /// Which start of this member this is; grows with every one, and is on disk before the member speaks.
    pub boot: u64,
    /// Bytes of entries that one message carries.
    pub message_bytes_max: u64,
    /// Bytes of entries proposed and not yet committed, beyond which proposals are refused.
    pub uncommitted_bytes_max: u64,
}

/// What a member finds on its disk.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// The newest checkpoint; index 0 for a member that knows nothing yet and waits to be told.
    pub snapshot: SnapshotMeta,
    /// The entries of the log in order, some of them perhaps older than the checkpoint.
    pub entries: Vec<Entry>,
    /// The last hard state written.
    pub hard_state: HardState,
}

/// The point in the log at which a state was taken.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SnapshotMeta {
    /// The last entry in it.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// The group at that point.
    pub group: Group,
}

/// A proposal is the payload of the entry it wants to become.
pub type Proposal = Payload;

/// Why a proposal did not make it into the log.
///
/// A refusal that came over the network is of one copy of the proposal: a doubled message may have brought another copy into a log.
/// So it is made again under the same [`RequestId`], of which one copy at most is applied. Only [`ProposeError::Overtaken`] says that
/// no copy ever will be, provided that this member has applied every entry itself and not skipped some by a snapshot.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProposeError {
    /// There is no leader, or the one it was sent to leads no more.
    #[error("no leader")]
    NoLeader,
    /// A later proposal of the same member was applied first; this one will never be.
    #[error("the proposal was overtaken by a later one")]
    Overtaken,
    /// Leadership is on its way to another member.
    #[error("leadership is being transferred")]
    Transferring,
    /// Too much is on its way already.
    #[error("too many requests")]
    Overloaded,
    /// The learner is too far behind to vote.
    #[error("can only promote a learner member which is in sync with leader")]
    LearnerNotReady,
    /// The member has left the cluster.
    #[error("the member has been removed from the cluster")]
    Stopped,
    /// The change of membership makes no sense.
    #[error(transparent)]
    Change(ChangeError),
}

/// A message from a peer that no correct peer sends, or that this member's own disk makes impossible to follow.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fault {
    /// The leader knows that this member has stored more than it has.
    #[error(
        "member {from} counts on entries up to {expected} but the log here ends at {last}: this member's disk has lost entries that \
         it had acknowledged; remove the member from the cluster and add it again with an empty data directory"
    )]
    LogLost {
        /// Who said so.
        from: u64,
        /// What it counts on.
        expected: u64,
        /// What is here.
        last: u64,
    },
    /// The message makes no sense here and was dropped.
    #[error("member {from} sent a message that makes no sense here: {what}")]
    Nonsense {
        /// Who.
        from: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// What a member is in its cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// Follows a leader, or waits for one.
    Follower,
    /// Wants to lead.
    Candidate,
    /// Leads.
    Leader,
}

/// The observable state of a member.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Status {
    /// Its term.
    pub term: u64,
    /// Who leads, or 0.
    pub leader: u64,
    /// What it is.
    pub role: Role,
    /// The last entry known to be committed.
    pub commit: u64,
    /// The last entry handed out to be applied.
    pub handed_out: u64,
    /// The last entry of its log.
    pub last: u64,
}

/// What must be on disk, in this order, before [`Member::persisted`] is called with its number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Persist {
    /// Counts up.
    pub number: u64,
    /// A received snapshot to put in place of state, checkpoint and log.
    pub install: Option<SnapshotMeta>,
    /// Entries to append; the first one may replace what was at its index and after.
    pub entries: Vec<Entry>,
    /// The hard state, when it changed.
    pub hard_state: Option<HardState>,
    /// Whether it needs a sync and a report. Without, it is a hint that may be written with the next one that does.
    pub sync: bool,
}

/// An entry whose time has come, in order of index.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Committed {
    /// Nothing to do but to note the index.
    Empty {
        /// Its place.
        index: u64,
    },
    /// A command to apply.
    Command {
        /// Its place.
        index: u64,
        /// Who waits.
        request: RequestId,
        /// The command.
        data: Bytes,
    },
    /// A command that must not be applied: it, or a later one of its origin, was applied before.
    Overtaken {
        /// Its place.
        index: u64,
        /// Who may wait.
        request: RequestId,
    },
    /// A change of membership, already in effect unless it failed.
    Changed {
        /// Its place.
        index: u64,
        /// Who waits.
        request: RequestId,
        /// The change.
        change: Change,
        /// Whether it was made.
        result: Result<(), ChangeError>,
    },
}

/// A snapshot to stream to a member that fell behind: the state as it is after everything committed in the same effects.
#[derive(Clone, Debug, PartialEq)]
pub struct SendSnapshot {
    /// To whom.
    pub to: u64,
    /// The message that ends the stream.
    pub message: Message,
}

/// What the shell has to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// To write.
    pub persist: Option<Persist>,
    /// To send, now.
    pub send: Vec<(u64, Message)>,
    /// To apply, in order, before the snapshots below are taken.
    pub committed: Vec<Committed>,
    /// To stream; ended by [`Member::snapshot_sent`].
    pub snapshots: Vec<SendSnapshot>,
    /// Reads that may be answered once the index has been applied.
    pub reads: Vec<(u64, u64)>,
    /// Proposals of this member that are in no log.
    pub refused: Vec<(RequestId, ProposeError)>,
    /// Who leads and as what this member now stands, when it changed.
    pub changed: Option<Status>,
    /// Set once this member has been removed from the cluster.
    pub removed: bool,
}

/// One member of a cluster.
pub struct Member {
    config: Config,
    raft: RawNode<MemoryLog>,
    group: Group,
    /// Snapshots that raft has not yet decided about.
    offered: Vec<SnapshotMeta>,
    /// Messages that wait for the disk, by the number of the write they wait for.
    held: VecDeque<(u64, Vec<(u64, Message)>)>,
    /// Writes handed out and not yet reported done, with the term and vote they make durable.
    writing: VecDeque<(u64, Option<HardState>)>,
    durable: HardState,
    /// The number of the write that installs a snapshot, while it is under way.
    installing: Option<u64>,
    /// The last entry handed out, with its term.
    handed_out: (u64, u64),
    applied: u64,
    election: election::Draws,
    /// It was asked to stand, and has too much to apply yet.
    campaign_wanted: bool,
    outbox: Effects,
    seen: Option<Status>,
    removed: bool,
}

impl Member {
    /// A member that continues from what it finds on its disk.
    ///
    /// # Panics
    ///
    /// If the configuration contradicts itself, or the entries do not follow each other.
    pub fn new(config: Config, recovered: Recovered) -> Self {
        let Recovered { snapshot, entries, hard_state } = recovered;
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
            held: VecDeque::new(),
            writing: VecDeque::new(),
            durable: hard_state,
            installing: None,
            handed_out: (snapshot.index, snapshot.term),
            applied: snapshot.index,
            election,
            campaign_wanted: false,
            outbox: Effects::default(),
            seen: None,
            removed: false,
            config,
        };
        member.draw_election(false);
        member
    }

    /// One tick of the clock that elections and heartbeats count in.
    pub fn tick(&mut self) {
        if self.removed || !self.may_campaign_now() {
            return;
        }
        let timed_out = self.raft.tick() && self.raft.raft.state != StateRole::Leader;
        self.draw_election(timed_out);
    }

    /// Stands for election at once; a sole voter need not wait for a silence. One that has much to apply first stands after that.
    pub fn campaign(&mut self) {
        if self.removed {
            return;
        }
        self.campaign_wanted = self.has_long_backlog();
        if self.may_campaign_now() {
            let _ = self.raft.campaign();
            self.draw_election(true);
        }
    }

    /// Takes a message from a peer.
    pub fn message(&mut self, from: u64, message: Message) -> Result<(), Fault> {
        if self.removed {
            return Ok(());
        }
        match message {
            Message::Raft(mut message) => {
                self.guard(from, &message.0)?;
                if self.correct_refusal(&mut message.0) {
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
                let refused = self.propose_here(proposals);
                if !refused.is_empty() {
                    self.outbox.send.push((from, Message::Refused(refused)));
                }
            }
            Message::Refused(refusals) => {
                let own = refusals.into_iter().filter(|(request, _)| request.origin == self.config.id);
                self.outbox.refused.extend(own);
            }
        }
        Ok(())
    }

    /// Proposes entries: appended here by a leader, forwarded to it by a follower. Each comes back as [`Committed`] or as
    /// refused, or never when a message is lost.
    pub fn propose(&mut self, proposals: Vec<Proposal>) {
        let leader = self.raft.raft.leader_id;
        if self.is_leader() || leader == raft::INVALID_ID || self.removed {
            let refused = self.propose_here(proposals);
            self.outbox.refused.extend(refused);
        } else {
            self.outbox.send.push((leader, Message::Forward(proposals)));
        }
    }

    /// Asks from which index on a read that starts now is linearizable. The answer comes in [`Effects::reads`], or never when
    /// there is no leader or a message is lost: ask again then, with another id.
    pub fn read(&mut self, id: u64) {
        if !self.removed {
            let mut context = BytesMut::with_capacity(24);
            context.put_u64_le(self.config.id);
            context.put_u64_le(self.config.boot);
            context.put_u64_le(id);
            self.raft.read_index(context.to_vec());
        }
    }

    /// Everything up to this number is on disk.
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
            self.tell_applied();
        }
        while self.held.front().is_some_and(|(waits_for, _)| *waits_for <= number) {
            let (_, messages) = self.held.pop_front().expect("just seen");
            self.outbox.send.extend(messages);
        }
    }

    /// The state machine has applied everything up to this index.
    pub fn applied(&mut self, index: u64) {
        self.applied = self.applied.max(index);
        if !self.removed {
            self.tell_applied();
        }
    }

    /// A snapshot reached the other side, or did not.
    pub fn snapshot_sent(&mut self, to: u64, arrived: bool) {
        let status = if arrived { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        if !self.removed {
            self.raft.report_snapshot(to, status);
        }
    }

    /// A message could not be delivered.
    pub fn unreachable(&mut self, peer: u64) {
        if !self.removed {
            self.raft.report_unreachable(peer);
        }
    }

    /// Hands leadership to another voter, if this member leads.
    pub fn transfer(&mut self, to: u64) {
        if self.is_leader() && !self.removed {
            self.raft.transfer_leader(to);
        }
    }

    /// Drops applied entries from memory: all but `reserve` bytes, and more only where a follower still follows them, up to `limit`.
    pub fn compact(&mut self, reserve: usize, limit: usize) {
        let applied = self.raft.raft.raft_log.applied;
        let needed = self.needed_by_followers();
        let may_drop =
            |index: u64, bytes: usize| index <= applied && bytes > reserve && (index <= needed || bytes > limit);
        self.raft.mut_store().compact(may_drop);
    }

    /// Whether time means nothing to this member now: it leads alone, so there is nobody to hear or to lose.
    pub fn is_idle(&self) -> bool {
        self.removed
            || (self.is_leader() && self.group.is_sole_voter(self.config.id) && self.group.members().count() == 1)
    }

    /// Whether everything that was ever acknowledged is among the entries handed out, and nobody else can acknowledge anything: it leads
    /// alone, and has handed out an entry of its own term. A read then needs to ask nobody.
    pub fn decides_alone(&self) -> bool {
        let settled = self.handed_out.1 == self.raft.raft.term;
        settled && !self.removed && self.is_leader() && self.group.is_sole_voter(self.config.id)
    }

    /// Who the members are, as of the last entry handed out.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The point at which a state that has applied everything handed out stands.
    pub fn snapshot_meta(&self) -> SnapshotMeta {
        SnapshotMeta { index: self.handed_out.0, term: self.handed_out.1, group: self.group.clone() }
    }

    /// Bytes of the entries held in memory.
    pub fn log_bytes(&self) -> usize {
        self.raft.store().bytes()
    }

    /// The voter that would make the best next leader, if there is another one that follows closely and is fit for it.
    pub fn successor(&self, is_fit: impl Fn(u64) -> bool) -> Option<u64> {
        let progress = self.raft.raft.prs();
        let voter = |id: u64| self.group.member(id).is_some_and(|peer| !peer.learner);
        let others = progress
            .iter()
            .filter(|(id, seen)| **id != self.config.id && voter(**id) && seen.recent_active && is_fit(**id));
        others.max_by_key(|(id, seen)| (seen.matched, **id)).map(|(id, _)| *id)
    }

    /// The observable state.
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

    /// Raft wants to hear of entries that are durable here, and not before.
    fn tell_applied(&mut self) {
        let log = &self.raft.raft.raft_log;
        let index = self.applied.min(log.committed).min(log.persisted);
        if index > log.applied {
            self.raft.advance_apply_to(index);
            if self.campaign_wanted && !self.has_long_backlog() && self.raft.raft.leader_id == raft::INVALID_ID {
                self.campaign();
            }
        }
    }

    fn step(&mut self, message: eraftpb::Message) {
        // Errors say that raft ignored the message, which is its right.
        let _ = self.raft.step(message);
        self.draw_election(false);
    }

    /// Appends as leader; gives back what it cannot.
    fn propose_here(&mut self, proposals: Vec<Proposal>) -> Vec<(RequestId, ProposeError)> {
        let mut refused = Vec::new();
        let mut entries = Vec::with_capacity(proposals.len());
        let mut requests = Vec::with_capacity(proposals.len());
        for proposal in proposals {
            let Some(request) = proposal.request() else { continue };
            if self.must_hand_over(&proposal) {
                refused.push((request, ProposeError::Transferring));
                continue;
            }
            match self.check_proposal(&proposal, &entries) {
                Err(reason) => refused.push((request, reason)),
                Ok(()) => {
                    entries.push(proposal.into_raft());
                    requests.push(request);
                }
            }
        }
        if entries.is_empty() {
            return refused;
        }
        let mut message = eraftpb::Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.config.id;
        message.set_entries(entries.into());
        if self.raft.step(message).is_err() {
            let transferring = self.raft.raft.lead_transferee.is_some();
            let reason = if transferring { ProposeError::Transferring } else { ProposeError::Overloaded };
            refused.extend(requests.into_iter().map(|request| (request, reason.clone())));
        }
        refused
    }

    /// A leader does not remove itself: it would be gone before the others have heard that it may go, and of two members the other one
    /// would wait for it for good. It hands over first, and the next leader removes it.
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
        // Raft would turn a second change into an empty entry, and nobody would hear of it.
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

    /// etcd's rule: a learner has nine tenths of what is committed.
    fn is_in_sync(&self, learner: u64) -> bool {
        let commit = self.raft.raft.raft_log.committed;
        self.raft
            .raft
            .prs()
            .get(learner)
            .is_some_and(|seen| seen.matched.saturating_mul(10) >= commit.saturating_mul(9))
    }

    /// The last entry that no follower this leader hears of will ask for.
    fn needed_by_followers(&self) -> u64 {
        if !self.is_leader() {
            return u64::MAX;
        }
        let progress = self.raft.raft.prs().iter();
        let active = progress.filter(|(id, seen)| **id != self.config.id && seen.recent_active);
        active.map(|(_, seen)| seen.matched.max(seen.pending_snapshot)).min().unwrap_or(u64::MAX)
    }
}

/// Entries at or before the checkpoint are kept for followers; the oldest of them stands for its term only.
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
