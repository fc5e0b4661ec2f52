//! Linearizable reads, batched into quorum rounds.

use consensus::Member;

/// Reads that arrive during a round wait for the next one: a round confirms only reads that started before it.
#[derive(Default)]
pub(super) struct Reads {
    waiting: Vec<u64>,
    current_round: Option<Round>,
    confirmed: Vec<(u64, Vec<u64>)>,
    next_round: u64,
}

struct Round {
    id: u64,
    tokens: Vec<u64>,
    age_ticks: u32,
}

/// Ticks without a response after which a round is considered lost.
const ROUND_TIMEOUT_TICKS: u32 = 3;

impl Reads {
    pub(super) fn add(&mut self, token: u64, member: &mut Member) {
        self.waiting.push(token);
        if self.current_round.is_none() {
            self.start_round(member);
        }
    }

    pub(super) fn tick(&mut self, member: &mut Member) {
        let Some(round) = &mut self.current_round else { return };
        round.age_ticks += 1;
        if round.age_ticks >= ROUND_TIMEOUT_TICKS {
            self.restart_round(member);
        }
    }

    /// Restarts the round in progress together with the waiting reads.
    pub(super) fn restart_round(&mut self, member: &mut Member) {
        if let Some(round) = self.current_round.take() {
            self.waiting.extend(round.tokens);
            self.start_round(member);
        }
    }

    pub(super) fn confirmed(&mut self, id: u64, index: u64, member: &mut Member) {
        match self.current_round.take() {
            Some(round) if round.id == id => {
                self.confirmed.push((index, round.tokens));
                self.start_round(member);
            }
            other => self.current_round = other,
        }
    }

    pub(super) fn take_ready(&mut self, applied: u64) -> Vec<u64> {
        let (ready, later): (Vec<_>, Vec<_>) = self.confirmed.drain(..).partition(|(index, _)| *index <= applied);
        self.confirmed = later;
        ready.into_iter().flat_map(|(_, tokens)| tokens).collect()
    }

    fn start_round(&mut self, member: &mut Member) {
        if self.waiting.is_empty() {
            return;
        }
        self.next_round += 1;
        let tokens = std::mem::take(&mut self.waiting);
        self.current_round = Some(Round { id: self.next_round, tokens, age_ticks: 0 });
        member.read(self.next_round);
    }
}
