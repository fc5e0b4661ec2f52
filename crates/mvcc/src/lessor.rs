//! Lessor: the leader's deadlines of leases. It only reports expired leases; revoking them is a command.
//!
//! Only a leader has a lessor. It is created from the state when a member becomes leader. Every lease then gets its
//! full TTL again, or the remaining time of its last checkpoint: a lease may live longer than requested, never shorter.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::Command;
use crate::state::{Outcome, Reply, State};
use crate::{Lease, LeaseId};

/// Interval at which the remaining time of long leases is written to the log.
const CHECKPOINT_EVERY_MS: u64 = 5 * 60 * 1000;
/// Interval after which an expired lease is reported again, in case its revocation was lost.
const REPORT_AGAIN_MS: u64 = 1000;
/// Maximum number of leases in one checkpoint command.
const CHECKPOINT_MAX: usize = 1000;

/// The deadlines of all leases, in milliseconds of the leader's monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct Lessor {
    leases: BTreeMap<LeaseId, Deadline>,
    /// The time of each lease's next check: its expiry, or the time to report it again.
    due: BTreeSet<(u64, LeaseId)>,
    checkpoint_due_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Deadline {
    ttl_seconds: i64,
    /// Whether the last checkpoint records less than the full TTL, so that a renewal must clear it.
    checkpointed: bool,
    expires_ms: u64,
    due_ms: u64,
}

impl Lessor {
    /// Creates the lessor of a new leader; every lease is extended by `extend_ms`, for the time without a leader.
    pub fn promote(state: &State, now_ms: u64, extend_ms: u64) -> Self {
        let mut lessor = Self { checkpoint_due_ms: now_ms + CHECKPOINT_EVERY_MS, ..Self::default() };
        for lease in state.leases() {
            lessor.start(lease, now_ms + extend_ms);
        }
        lessor
    }

    /// Records the effect of an applied command.
    pub fn observe(&mut self, command: &Command, outcome: &Outcome, now_ms: u64) {
        match (command.split().1, &outcome.result) {
            (_, Ok(Reply::LeaseGranted { id, ttl_seconds })) => {
                self.start(Lease { id: *id, ttl_seconds: *ttl_seconds, remaining_seconds: 0 }, now_ms);
            }
            (Command::LeaseRevoke { id }, Ok(_)) => self.remove(*id),
            _ => {}
        }
    }

    /// Renews a lease and returns its TTL in seconds; none if it does not exist or has expired.
    pub fn renew(&mut self, id: LeaseId, now_ms: u64) -> Option<i64> {
        let deadline = *self.leases.get(&id).filter(|deadline| deadline.expires_ms > now_ms)?;
        self.start(Lease { id, ttl_seconds: deadline.ttl_seconds, remaining_seconds: 0 }, now_ms);
        Some(deadline.ttl_seconds)
    }

    /// Returns the checkpoint to propose before a lease with a checkpoint is renewed: otherwise a new leader would
    /// shorten the renewal.
    pub fn checkpoint_of_renewal(&self, id: LeaseId) -> Option<Command> {
        let deadline = self.leases.get(&id).filter(|deadline| deadline.checkpointed)?;
        Some(Command::LeaseCheckpoint { remaining: vec![(id, deadline.ttl_seconds)] })
    }

    /// Returns the remaining seconds of a lease, rounded down and negative after expiry; none if it does not exist.
    pub fn remaining(&self, id: LeaseId, now_ms: u64) -> Option<i64> {
        let deadline = self.leases.get(&id)?;
        Some((deadline.expires_ms.cast_signed() - now_ms.cast_signed()).div_euclid(1000))
    }

    /// Returns at most `max` expired leases, whose revocation is to be proposed.
    pub fn expired(&mut self, now_ms: u64, max: usize) -> Vec<LeaseId> {
        let due: Vec<_> = self.due.range(..=(now_ms, LeaseId::MAX)).take(max).copied().collect();
        for (due_ms, id) in &due {
            self.due.remove(&(*due_ms, *id));
            if let Some(deadline) = self.leases.get_mut(id) {
                deadline.due_ms = now_ms + REPORT_AGAIN_MS;
                self.due.insert((deadline.due_ms, *id));
            }
        }
        due.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the next time at which [`Lessor::expired`] or [`Lessor::checkpoints`] has a result.
    pub fn next_deadline(&self) -> Option<u64> {
        let (due_ms, _) = self.due.first()?;
        Some((*due_ms).min(self.checkpoint_due_ms))
    }

    /// Returns the checkpoint of long leases, if one is due.
    pub fn checkpoints(&mut self, now_ms: u64) -> Option<Command> {
        if now_ms < self.checkpoint_due_ms {
            return None;
        }
        self.checkpoint_due_ms = now_ms + CHECKPOINT_EVERY_MS;
        let long = self.leases.iter_mut().filter(|(_, deadline)| {
            // A lease shorter than the interval is renewed or expired before its checkpoint could matter.
            deadline.ttl_seconds.cast_unsigned().saturating_mul(1000) > CHECKPOINT_EVERY_MS
                && deadline.expires_ms > now_ms
        });
        let remaining: Vec<_> = long
            .take(CHECKPOINT_MAX)
            .map(|(id, deadline)| {
                deadline.checkpointed = true;
                // Rounded up: a checkpoint must not shorten a lease.
                (*id, (deadline.expires_ms - now_ms).div_ceil(1000).cast_signed())
            })
            .collect();
        (!remaining.is_empty()).then_some(Command::LeaseCheckpoint { remaining })
    }

    fn start(&mut self, lease: Lease, now_ms: u64) {
        self.remove(lease.id);
        let seconds = if lease.remaining_seconds > 0 { lease.remaining_seconds } else { lease.ttl_seconds };
        let expires_ms = now_ms.saturating_add(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000));
        self.due.insert((expires_ms, lease.id));
        let deadline = Deadline {
            ttl_seconds: lease.ttl_seconds,
            checkpointed: lease.remaining_seconds > 0 && lease.remaining_seconds < lease.ttl_seconds,
            expires_ms,
            due_ms: expires_ms,
        };
        self.leases.insert(lease.id, deadline);
    }

    fn remove(&mut self, id: LeaseId) {
        if let Some(deadline) = self.leases.remove(&id) {
            self.due.remove(&(deadline.due_ms, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lessor(leases: &[(LeaseId, i64)]) -> Lessor {
        let mut state = State::new();
        for (index, (id, ttl_seconds)) in (1..).zip(leases) {
            state.apply(index, &Command::LeaseGrant { id: *id, ttl_seconds: *ttl_seconds });
        }
        Lessor::promote(&state, 0, 0)
    }

    #[test]
    fn lease_expires_on_time_and_is_reported_until_revoked() {
        let mut lessor = lessor(&[(1, 10), (2, 20)]);
        assert_eq!(lessor.next_deadline(), Some(10_000));
        assert_eq!(lessor.expired(9_999, 9), []);
        assert_eq!(lessor.expired(10_000, 9), [1]);
        assert_eq!(lessor.expired(10_500, 9), []);
        assert_eq!(lessor.expired(11_000, 9), [1]);
        let outcome = Outcome { revision: 1, result: Ok(Reply::LeaseRevoked) };
        lessor.observe(&Command::LeaseRevoke { id: 1 }, &outcome, 11_000);
        assert_eq!(lessor.expired(30_000, 9), [2]);
    }

    #[test]
    fn renewal_restarts_the_ttl_unless_expired() {
        let mut lessor = lessor(&[(1, 10)]);
        assert_eq!(lessor.renew(1, 9_000), Some(10));
        assert_eq!(lessor.remaining(1, 9_500), Some(9));
        assert_eq!(lessor.expired(18_999, 9), []);
        assert_eq!(lessor.renew(1, 19_000), None);
        assert_eq!(lessor.renew(7, 0), None);
        assert_eq!(lessor.expired(19_000, 9), [1]);
    }

    #[test]
    fn new_leader_continues_from_the_checkpoint_and_renewal_clears_it() {
        let mut state = State::new();
        state.apply(1, &Command::LeaseGrant { id: 1, ttl_seconds: 1000 });
        state.apply(2, &Command::LeaseGrant { id: 2, ttl_seconds: 10 });
        let mut first = Lessor::promote(&state, 0, 0);
        assert_eq!(first.checkpoints(CHECKPOINT_EVERY_MS - 1), None);
        let command = first.checkpoints(CHECKPOINT_EVERY_MS).expect("a checkpoint is due");
        assert_eq!(command, Command::LeaseCheckpoint { remaining: vec![(1, 700)] });
        state.apply(3, &command);

        let second = Lessor::promote(&state, 0, 5_000);
        assert_eq!(second.remaining(1, 0), Some(705));
        let clear = second.checkpoint_of_renewal(1).expect("the lease has a checkpoint");
        state.apply(4, &clear);
        assert_eq!(Lessor::promote(&state, 0, 0).remaining(1, 0), Some(1000));
    }
}
