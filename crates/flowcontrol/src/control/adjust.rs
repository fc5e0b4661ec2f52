//! Lending and borrowing: every ten seconds seats are reallocated by the demand of each level.

use std::time::Duration;

use super::{FlowControl, Level, Ticket};
use crate::Moment;
use crate::allocation::{self, Claim, Division};

/// Interval of reallocation.
pub(super) const PERIOD: Duration = Duration::from_secs(10);

impl FlowControl {
    /// Reallocates the seats by the demand since the last call. Returns the requests that may now execute.
    pub fn adjust(&mut self, now: Moment) -> Vec<Ticket> {
        self.adjusted_at = now;
        let mut claims = Vec::with_capacity(self.levels.len());
        for level in self.levels.iter_mut().flatten() {
            let seen = level.queues.demand.reset(now);
            level.demand.update(seen);
            claims.push(level.claim());
        }
        let nominal = self.levels.iter().flatten().map(|level| level.limits.nominal).sum();
        // Contradictory claims leave the allocation unchanged.
        let division = allocation::divide(nominal, &claims).unwrap_or_else(|_| Division {
            seats: self.levels.iter().flatten().map(|level| f64::from(level.current)).collect(),
            fair_fraction: 0.0,
        });
        self.fair_fraction = division.fair_fraction;
        let mut given = claims.iter().zip(division.seats);
        let mut admitted = Vec::new();
        for id in 0..self.levels.len() {
            let Some(level) = self.levels[id].as_mut() else { continue };
            let (claim, seats) = given.next().expect("every level has a claim");
            level.target = claim.target;
            level.current = seats.round() as u32;
            let started = level.queues.configure(level.spec.discipline, level.current, now);
            admitted.extend(self.note_started(id as u32, &started, now));
        }
        admitted
    }
}

impl Level {
    /// Returns the level's claim: at least its peak demand up to its nominal seats, and its smoothed demand as target.
    fn claim(&self) -> Claim {
        let (nominal, lower) = (f64::from(self.limits.nominal), f64::from(self.limits.lower));
        let keeps = self.demand.high_watermark.min(nominal).max(lower);
        Claim { target: self.demand.smoothed.max(keeps), lower: keeps, upper: f64::from(self.limits.upper) }
    }
}
