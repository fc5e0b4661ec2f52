//! Election timeouts, which replace those of the `raft` crate: first in a fixed order, then random from a seed.

use raft::StateRole;

use super::{Config, Member};

/// Maximum number of committed and unapplied entries of a candidate. Applying them takes a fraction of an election
/// timeout.
pub(super) const BACKLOG_MAX: u64 = 10_000;

/// A sequence of waits determined by a seed.
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
        usize::try_from(self.next() % end as u64).expect("the value is below the range's end")
    }
}

/// Returns the exclusive maximum wait. The range is half as wide as Raft's usual one, so a dead leader is replaced
/// sooner.
pub(super) fn ticks_end(election_ticks: usize) -> usize {
    election_ticks + (election_ticks / 2).max(2)
}

impl Member {
    /// Replaces raft's election timeout. Raft sets a new one whenever term or role changes; at other times ours is
    /// restored.
    ///
    /// Followers lose their leader simultaneously, so they campaign in order, one tick apart, and votes do not split. A
    /// member that was not elected uses random waits, because the first in order may be unable to win.
    pub(super) fn choose_election_timeout(&mut self, timed_out: bool) {
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

    /// Returns the number of voters that campaign before this one.
    fn voters_before(&self, excluded: Option<u64>) -> usize {
        let own = self.config.id;
        self.group.members().filter(|other| !other.learner && other.id < own && Some(other.id) != excluded).count()
    }

    /// Reports that a peer closed its connection, as the kernel does for a dead process. If it was the leader, the
    /// others campaign without waiting for the timeout, one tick apart so that votes do not split. A live leader that a
    /// majority hears remains leader, because those members refuse to vote.
    pub fn peer_disconnected(&mut self, peer: u64) {
        let raft = &mut self.raft.raft;
        if self.removed || raft.leader_id != peer || raft.state != StateRole::Follower {
            return;
        }
        let ticks = self.config.election_ticks;
        raft.election_elapsed = ticks;
        self.election.wait = (ticks + 1 + self.voters_before(Some(peer))).min(ticks_end(ticks) - 1);
        self.raft.raft.set_randomized_election_timeout(self.election.wait);
    }

    /// Whether raft's assertions allow a campaign: a winner's log must be durable, and a candidate scans its log for
    /// pending changes. A sole voter wins immediately, and during a snapshot there is no log to scan.
    pub(super) fn may_campaign_now(&self) -> bool {
        let log = &self.raft.raft.raft_log;
        let behind = log.persisted != log.last_index();
        let sole = self.group.is_sole_voter(self.config.id);
        self.is_leader() || (self.installing.is_none() && !(sole && behind) && !self.has_long_backlog())
    }

    /// Whether more entries are committed and unapplied than a candidate may scan: `raft` 0.7 copies all of them to
    /// search for membership changes (fixed after 0.7 by its change 530).
    pub(super) fn has_long_backlog(&self) -> bool {
        let log = &self.raft.raft.raft_log;
        log.committed.saturating_sub(log.applied) > BACKLOG_MAX
    }
}
