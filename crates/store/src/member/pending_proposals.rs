//! Pending proposals and their deadlines.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use consensus::{Change, ProposeError as Refusal};
use tokio::time::Instant;

use super::{ProposeError, Reply};
use crate::replica::{ProposalResult, Replica};

/// The content of a proposal.
pub(super) enum ProposalKind {
    Command(Bytes),
    Change(Change),
}

pub(super) struct Waiter {
    pub proposal_kind: ProposalKind,
    /// The sequence of an earlier attempt, reused while a copy may be in flight: only one copy of a sequence is
    /// applied.
    pub sequence: Option<u64>,
    pub reply: Reply<Result<ProposalResult, ProposeError>>,
    pub deadline: Instant,
}

/// In-flight proposals, and proposals that wait for a leader.
#[derive(Default)]
pub(super) struct Waiters {
    proposed: BTreeMap<u64, Waiter>,
    parked: VecDeque<Waiter>,
}

/// Maximum number of pending proposals per member.
const WAITERS_MAX: usize = 64 << 10;

impl Waiters {
    pub(super) fn is_empty(&self) -> bool {
        self.proposed.is_empty() && self.parked.is_empty()
    }

    /// Submits proposals, or parks them until there is a leader.
    pub(super) fn propose(&mut self, waiters: Vec<Waiter>, replica: &mut Replica) {
        let has_leader = replica.member().status().leader != 0;
        let mut commands = Vec::with_capacity(waiters.len());
        for waiter in waiters {
            if self.proposed.len() + self.parked.len() >= WAITERS_MAX {
                let _ = waiter.reply.send(Err(Refusal::Overloaded.into()));
            } else if !has_leader {
                self.parked.push_back(waiter);
            } else {
                let sequence = waiter.sequence.unwrap_or_else(|| replica.reserve());
                match &waiter.proposal_kind {
                    ProposalKind::Command(command) => commands.push((sequence, command.clone())),
                    // Earlier commands must be proposed first, to keep the order of sequences.
                    ProposalKind::Change(change) => {
                        replica.propose_all(std::mem::take(&mut commands));
                        replica.change(sequence, change.clone());
                    }
                }
                self.proposed.insert(sequence, waiter);
            }
        }
        if !commands.is_empty() {
            replica.propose_all(commands);
        }
    }

    /// Submits parked proposals.
    pub(super) fn unpark(&mut self, replica: &mut Replica) {
        let mut parked: Vec<Waiter> = self.parked.drain(..).collect();
        parked.sort_by_key(|waiter| waiter.sequence.unwrap_or(u64::MAX));
        self.propose(parked, replica);
    }

    /// Proposes all in-flight proposals again, with the same request IDs: the new leader may not have received them.
    pub(super) fn follow_leader(&mut self, replica: &mut Replica) {
        let proposed = std::mem::take(&mut self.proposed);
        let again = proposed.into_iter().map(|(sequence, waiter)| Waiter { sequence: Some(sequence), ..waiter });
        self.parked.extend(again);
        self.unpark(replica);
    }

    /// Forwards a result. A proposal that failed only because of a leader change is proposed to the next leader: with
    /// the same request ID if a copy may be in some log, with a new one if no copy can be applied.
    pub(super) fn resolve(&mut self, sequence: u64, result: Result<ProposalResult, Refusal>) {
        let Some(waiter) = self.proposed.remove(&sequence) else { return };
        match result {
            Err(Refusal::NoLeader | Refusal::Transferring) => {
                self.parked.push_back(Waiter { sequence: Some(sequence), ..waiter });
            }
            Err(Refusal::Superseded) => self.parked.push_back(Waiter { sequence: None, ..waiter }),
            result => {
                let _ = waiter.reply.send(result.map_err(ProposeError::from));
            }
        }
    }

    /// Fails in-flight proposals with Timeout after a snapshot was installed: it may contain them, so their outcome is
    /// unknown.
    pub(super) fn fail_undecided(&mut self) {
        let parked = std::mem::take(&mut self.parked);
        let (tried, untried): (VecDeque<_>, VecDeque<_>) =
            parked.into_iter().partition(|waiter| waiter.sequence.is_some());
        self.parked = untried;
        for waiter in std::mem::take(&mut self.proposed).into_values().chain(tried) {
            let _ = waiter.reply.send(Err(ProposeError::Timeout));
        }
    }

    /// Whether there are parked proposals.
    pub(super) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Fails proposals whose deadline has passed. A parked proposal without a sequence is in no log, so its error is
    /// definite.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.proposed.first_key_value().is_some_and(|(_, waiter)| waiter.deadline <= now) {
            let (_, waiter) = self.proposed.pop_first().expect("the first entry was checked above");
            let _ = waiter.reply.send(Err(ProposeError::Timeout));
        }
        while self.parked.front().is_some_and(|waiter| waiter.deadline <= now) {
            let waiter = self.parked.pop_front().expect("the first entry was checked above");
            let tried = waiter.sequence.is_some();
            let _ = waiter.reply.send(Err(if tried { ProposeError::Timeout } else { Refusal::NoLeader.into() }));
        }
    }
}
