//! Election waits drawn from a seed, in place of the `raft` crate's own randomness.

use raft::StateRole;

use super::{Config, Member};

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
}

/// Waits are drawn below this. Half as wide as Raft's usual range: two members draw the same wait a little more often, and a dead
/// leader is replaced sooner.
pub(super) fn ticks_end(election_ticks: usize) -> usize {
    election_ticks + (election_ticks / 2).max(2)
}

impl Member {
    /// Raft draws a wait whenever it changes term or role; ours takes its place then, and is put back at any other time.
    pub(super) fn draw_election(&mut self, timed_out: bool) {
        let standing = (self.raft.raft.term, self.raft.raft.state);
        if timed_out || self.election.drawn_for != Some(standing) {
            let ticks = self.config.election_ticks;
            let width = (ticks_end(ticks) - ticks) as u64;
            let drawn = usize::try_from(self.election.next() % width).expect("less than the width");
            self.election.wait = ticks + drawn;
            self.election.drawn_for = Some(standing);
        }
        self.raft.raft.set_randomized_election_timeout(self.election.wait);
    }

    /// A peer has closed its connection, as the kernel does for a process that dies. If it led, its silence need not be waited for:
    /// the others stand at once, one tick after the other so that their votes do not split. A leader that lives on and is heard by a
    /// majority keeps its office, because those that hear it refuse to vote.
    pub fn hung_up(&mut self, peer: u64) {
        let raft = &mut self.raft.raft;
        if self.removed || raft.leader_id != peer || raft.state != StateRole::Follower {
            return;
        }
        let own = self.config.id;
        let earlier = self.group.members().filter(|other| !other.learner && other.id != peer && other.id < own).count();
        let ticks = self.config.election_ticks;
        raft.election_elapsed = ticks;
        self.election.wait = (ticks + 1 + earlier).min(ticks_end(ticks) - 1);
        raft.set_randomized_election_timeout(self.election.wait);
    }

    /// Raft asserts that a candidate's whole log is durable when it wins, and looks into the log for pending changes when it
    /// stands. A sole voter wins at once, and a snapshot under way leaves nothing to look into.
    pub(super) fn may_campaign_now(&self) -> bool {
        let log = &self.raft.raft.raft_log;
        let behind = log.persisted != log.last_index();
        let sole = self.group.is_sole_voter(self.config.id);
        self.is_leader() || (self.installing.is_none() && !(sole && behind))
    }
}
