//! How long a member waits for a leader, in place of the `raft` crate's own draw: first in turn, then by lot from a seed.

use raft::StateRole;

use super::{Config, Member};

/// How many entries may be committed and not applied when a member stands for election. Applying them takes a fraction of the time
/// that an election waits for.
pub(super) const BACKLOG_MAX: u64 = 10_000;

/// A sequence of waits that a seed determines.
pub(super) struct Draws {
    state: u64,
    wait: usize,
    drawn_for: Option<(u64, StateRole)>,
}

impl Draws {
    pub(super) fn new(config: &Config) -> Self {
        let state = config.seed ^ config.id.rotate_left(32) ^ config.boot;
        Self { state, wait: config.election_ticks, drawn_for: None }
    }

    /// `splitmix64`.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("less than the end")
    }
}

/// Waits are below this. Half as wide as Raft's usual range: a dead leader is replaced sooner.
pub(super) fn ticks_end(election_ticks: usize) -> usize {
    election_ticks + (election_ticks / 2).max(2)
}

impl Member {
    /// Raft draws a wait whenever it changes term or role; ours takes its place then, and is put back at any other time.
    ///
    /// Followers fall silent together, so they stand in turn, a tick apart, and their votes do not split. Whoever stood and was not
    /// elected draws lots: the turn may be of one that cannot win.
    pub(super) fn draw_election(&mut self, timed_out: bool) {
        let standing = (self.raft.raft.term, self.raft.raft.state);
        if timed_out || self.election.drawn_for != Some(standing) {
            let ticks = self.config.election_ticks;
            let width = ticks_end(ticks) - ticks;
            let in_turn = !timed_out && standing.1 == StateRole::Follower;
            let more = if in_turn { self.voters_before(None) } else { self.election.below(width) };
            self.election.wait = ticks + more % width;
            self.election.drawn_for = Some(standing);
        }
        self.raft.raft.set_randomized_election_timeout(self.election.wait);
    }

    /// How many voters have an earlier turn than this one.
    fn voters_before(&self, gone: Option<u64>) -> usize {
        let own = self.config.id;
        self.group.members().filter(|other| !other.learner && other.id < own && Some(other.id) != gone).count()
    }

    /// A peer has closed its connection, as the kernel does for a process that dies. If it led, its silence need not be waited for:
    /// the others stand at once, one tick after the other so that their votes do not split. A leader that lives on and is heard by a
    /// majority keeps its office, because those that hear it refuse to vote.
    pub fn hung_up(&mut self, peer: u64) {
        let raft = &mut self.raft.raft;
        if self.removed || raft.leader_id != peer || raft.state != StateRole::Follower {
            return;
        }
        let ticks = self.config.election_ticks;
        raft.election_elapsed = ticks;
        self.election.wait = (ticks + 1 + self.voters_before(Some(peer))).min(ticks_end(ticks) - 1);
        self.raft.raft.set_randomized_election_timeout(self.election.wait);
    }

    /// Raft asserts that a candidate's whole log is durable when it wins, and looks into the log for pending changes when it
    /// stands. A sole voter wins at once, and a snapshot under way leaves nothing to look into.
    pub(super) fn may_campaign_now(&self) -> bool {
        let log = &self.raft.raft.raft_log;
        let behind = log.persisted != log.last_index();
        let sole = self.group.is_sole_voter(self.config.id);
        self.is_leader() || (self.installing.is_none() && !(sole && behind) && !self.has_long_backlog())
    }

    /// Whether more is committed and not yet applied than a candidate may look through: `raft` 0.7 copies all of it when it stands, to see whether
    /// a change of membership is among it (fixed after 0.7 by its change 530).
    pub(super) fn has_long_backlog(&self) -> bool {
        let log = &self.raft.raft.raft_log;
        log.committed.saturating_sub(log.applied) > BACKLOG_MAX
    }
}
