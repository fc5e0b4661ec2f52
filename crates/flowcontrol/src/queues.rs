//! Fair queuing of one priority level: seats, queues, and virtual time.
//!
//! All active queues progress at the same rate. `progress` is the work (seat-seconds) that one active queue has
//! received since the start. A queue's `next_dispatch` is the virtual start time of its next request. The queue whose
//! next request would finish first is served first. When a request finishes, its queue is charged the actual service
//! time instead of the estimate.
//!
//! ```text
//!            ┌── no seat, queue full ──> rejected
//!  arrive ───┼── no seat ──> waiting ──> running ──> lingering ──> done
//!            └── seat free ────────────────┘ └── no extra latency ──┘
//! ```
//!
//! Only non-empty queues are stored, so the configured number of queues costs nothing.

mod queue;
mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use queue::{Queue, Waiting};
use slots::Slots;

pub use slots::{Phase, Record, Tag};

use crate::demand::Integrator;
use crate::level::{Discipline, Queuing};
use crate::{Moment, Work};

/// Estimated service time of a request.
const SERVICE_NANOS: i128 = 3_000_000;

/// Seats times nanoseconds, in a type wide enough to never overflow.
pub type SeatTime = i128;

/// The requests of one priority level.
#[derive(Debug)]
pub struct Queues {
    discipline: Discipline,
    limit: u32,
    slots: Slots,
    /// Queues with a waiting, running or lingering request.
    queues: BTreeMap<u32, Queue>,
    /// Queues with a waiting request, by the virtual finish time of that request.
    ready: BTreeSet<(SeatTime, u32)>,
    /// Finished requests that keep their seats until the given time.
    lingering: BTreeSet<(Moment, u32)>,
    progress: SeatTime,
    at: Moment,
    /// The queue that was served last.
    robin: u32,
    enqueues: u64,
    active_queues: u32,
    queued_seats_in_use: u32,
    counts: Counts,
    /// The demanded seats over time.
    pub demand: Integrator,
}

/// The numbers of requests and seats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub waiting: u32,
    /// The seats of waiting requests.
    pub seats_waiting: u32,
    pub executing: u32,
    /// The seats of running and lingering requests.
    pub seats_in_use: u32,
    /// The number of times that the next request was too wide for the free seats.
    pub unaccommodated: u64,
}

/// The outcome of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalOutcome {
    /// The request runs in this slot.
    Executing(u32),
    /// The request waits in this slot. The second number is the length of its queue.
    Queued(u32, u32),
    /// The request is rejected: all seats are taken, and there are no queues.
    NoSeat,
    /// The request is rejected: its queue is full.
    QueueFull,
}

impl Queues {
    pub fn new(discipline: Discipline, limit: u32, now: Moment) -> Self {
        Self {
            discipline,
            limit,
            slots: Slots::default(),
            queues: BTreeMap::new(),
            ready: BTreeSet::new(),
            lingering: BTreeSet::new(),
            progress: 0,
            at: now,
            robin: 0,
            enqueues: 0,
            active_queues: 0,
            queued_seats_in_use: 0,
            counts: Counts::default(),
            demand: Integrator::new(now),
        }
    }

    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the maximum seats in use.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the progress of virtual time in seat-seconds.
    pub fn progress_seat_seconds(&self) -> f64 {
        self.progress as f64 / 1e9
    }

    /// Whether there are no waiting, running or lingering requests.
    pub const fn is_idle(&self) -> bool {
        self.counts.waiting == 0 && self.counts.executing == 0 && self.counts.seats_in_use == 0
    }

    /// Returns the length of the longest queue.
    pub fn length_max(&self) -> usize {
        self.queues.values().map(|queue| queue.waiting.len()).max().unwrap_or(0)
    }

    /// Returns the request in a slot, if the serial matches.
    pub fn record(&self, slot: u32, serial: u64) -> Option<&Record> {
        self.slots.get(slot, serial)
    }

    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.slots.iter()
    }

    /// Returns the request in a slot that an earlier step returned.
    pub(crate) fn at(&self, slot: u32) -> &Record {
        self.slots.at(slot)
    }

    /// Changes the metrics series of all requests.
    pub(crate) fn renumber_series(&mut self, moved: impl Fn(u32) -> u32) {
        self.slots.iter_mut().for_each(|record| record.tag.series = moved(record.tag.series));
    }

    /// Returns the time at which the next lingering request releases its seats.
    pub fn wake_at(&self) -> Option<Moment> {
        self.lingering.first().map(|(at, _)| *at)
    }

    /// Sets queuing and the seat limit. Returns the requests that may now run.
    pub fn configure(&mut self, discipline: Discipline, limit: u32, now: Moment) -> Vec<u32> {
        self.sync(now);
        self.discipline = discipline;
        self.limit = limit;
        self.dispatch_all(now)
    }

    /// Handles an arrival. Returns its outcome, and other requests that may now run: if two requests have the same
    /// virtual finish time, the arrival can change which one is next.
    pub fn arrive(&mut self, tag: Tag, work: Work, hash: u64, now: Moment) -> (ArrivalOutcome, Vec<u32>) {
        self.sync(now);
        let record = Record { tag, work, queue: None, arrived: now, started: now, phase: Phase::Running };
        match self.discipline {
            Discipline::Reject if !self.fits(work.width()) => (ArrivalOutcome::NoSeat, Vec::new()),
            Discipline::Reject | Discipline::Exempt => {
                self.take_seats(work, now);
                (ArrivalOutcome::Executing(self.slots.insert(record)), Vec::new())
            }
            Discipline::Queue(queuing) => self.arrive_at_queue(record, queuing, hash, now),
        }
    }

    /// Handles the completion of a running request. Returns the requests that may now run.
    pub fn finish(&mut self, slot: u32, serial: u64, now: Moment) -> Vec<u32> {
        if self.slots.get(slot, serial).is_none_or(|record| record.phase != Phase::Running) {
            return Vec::new();
        }
        self.sync(now);
        let record = self.slots.at_mut(slot);
        let (work, started, queue) = (record.work, record.started, record.queue);
        record.phase = Phase::Lingering;
        self.counts.executing -= 1;
        if let Some(queue) = queue {
            let took = now.since(started).as_nanos() as SeatTime;
            self.change(queue, |queue| {
                queue.executing -= 1;
                queue.next_dispatch += (took - SERVICE_NANOS) * SeatTime::from(work.initial_seats);
            });
        }
        if work.additional_latency.is_zero() {
            self.release(slot, now);
        } else {
            self.lingering.insert((now.plus(work.additional_latency), slot));
        }
        self.dispatch_all(now)
    }

    /// Removes a waiting request. Returns the requests that may now run, or `None` if the request is not waiting.
    pub fn leave(&mut self, slot: u32, serial: u64, now: Moment) -> Option<Vec<u32>> {
        let record = self.slots.get(slot, serial).filter(|record| record.phase == Phase::Waiting)?;
        let (queue, width) = (record.queue.expect("a waiting request is in a queue"), record.work.width());
        self.sync(now);
        self.change(queue, |queue| queue.remove(slot));
        self.slots.remove(slot);
        self.counts.waiting -= 1;
        self.counts.seats_waiting -= width;
        self.note_demand(now);
        Some(self.dispatch_all(now))
    }

    /// Releases the seats of lingering requests that are due. Returns the requests that may now run.
    pub fn wake(&mut self, now: Moment) -> Vec<u32> {
        if self.wake_at().is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.sync(now);
        while let Some((at, slot)) = self.lingering.first().copied().filter(|(at, _)| *at <= now) {
            self.lingering.remove(&(at, slot));
            self.release(slot, now);
        }
        self.dispatch_all(now)
    }

    fn arrive_at_queue(
        &mut self,
        record: Record,
        queuing: Queuing,
        hash: u64,
        now: Moment,
    ) -> (ArrivalOutcome, Vec<u32>) {
        let index = self.shard(queuing, hash);
        let width = record.work.width();
        // No request waits, so this one would be selected: it skips the queue.
        if self.counts.waiting == 0 && self.counts.seats_in_use < self.limit && self.fits(width) {
            let work = self.reshape(record.work);
            let progress = self.progress;
            self.change(index, |queue| {
                queue.activate(progress);
                queue.catch_up_with(progress);
                queue.start(work);
            });
            self.robin = index;
            self.queued_seats_in_use += work.width();
            self.take_seats(work, now);
            let slot = self.slots.insert(Record { queue: Some(index), work, ..record });
            return (ArrivalOutcome::Executing(slot), Vec::new());
        }
        // DEVIATION: a full queue rejects requests; upstream's queue grows without a bound behind a request too wide
        // for the free seats.
        let length = self.queues.get(&index).map_or(0, |queue| queue.waiting.len());
        if length >= queuing.length_max as usize {
            return (ArrivalOutcome::QueueFull, Vec::new());
        }
        let (arrival, work) = (self.progress, total_work(record.work));
        let slot = self.slots.insert(Record { queue: Some(index), phase: Phase::Waiting, ..record });
        self.change(index, |queue| {
            queue.activate(arrival);
            queue.push(Waiting { slot, work, arrival });
        });
        self.counts.waiting += 1;
        self.counts.seats_waiting += width;
        self.note_demand(now);
        let mut dispatched = self.dispatch_all(now);
        match dispatched.iter().position(|other| *other == slot) {
            Some(at) => {
                dispatched.remove(at);
                (ArrivalOutcome::Executing(slot), dispatched)
            }
            None => (ArrivalOutcome::Queued(slot, u32::try_from(length + 1).unwrap_or(u32::MAX)), dispatched),
        }
    }

    /// Returns the queue with the least waiting work of the flow's hand. Starting at a different card each time keeps
    /// flows with overlapping hands from favouring the same queue.
    fn shard(&mut self, queuing: Queuing, hash: u64) -> u32 {
        let hand = queuing.dealer.deal(hash);
        let cards = hand.cards();
        let offset = (self.enqueues % cards.len() as u64) as usize;
        self.enqueues += 1;
        let visited = cards[offset..].iter().chain(&cards[..offset]);
        let waiting = |index: &&u32| self.queues.get(*index).map_or(0, |queue| queue.waiting_work);
        // All queues are empty: any of them is equally good.
        if self.counts.waiting == 0 {
            return cards[offset];
        }
        visited.min_by_key(waiting).copied().expect("a hand has a card")
    }

    fn dispatch_all(&mut self, now: Moment) -> Vec<u32> {
        let mut dispatched = Vec::new();
        while let Some(slot) = self.dispatch(now) {
            dispatched.push(slot);
        }
        dispatched
    }

    /// Starts the request with the earliest virtual finish time if it fits. Ties go to the queue that follows the one
    /// served last.
    fn dispatch(&mut self, now: Moment) -> Option<u32> {
        if self.counts.seats_in_use >= self.limit {
            return None;
        }
        let first = *self.ready.first()?;
        let after_robin = (first.0, self.robin.saturating_add(1))..=(first.0, u32::MAX);
        let (_, index) = self.ready.range(after_robin).next().copied().unwrap_or(first);
        let slot = self.queues.get(&index)?.waiting.front()?.slot;
        let width = self.slots.at(slot).work.width();
        if !self.fits(width) {
            self.counts.unaccommodated += 1;
            return None;
        }
        let work = self.reshape(self.slots.at(slot).work);
        let record = self.slots.at_mut(slot);
        (record.phase, record.started, record.work) = (Phase::Running, now, work);
        self.change(index, |queue| {
            queue.pop();
            queue.start(work);
        });
        self.robin = index;
        self.counts.waiting -= 1;
        self.counts.seats_waiting -= width;
        self.queued_seats_in_use += work.width();
        self.take_seats(work, now);
        Some(slot)
    }

    fn take_seats(&mut self, work: Work, now: Moment) {
        self.counts.executing += 1;
        self.counts.seats_in_use += work.width();
        self.note_demand(now);
    }

    /// Releases the seats of a finished request.
    fn release(&mut self, slot: u32, now: Moment) {
        let record = self.slots.remove(slot);
        let width = record.work.width();
        self.counts.seats_in_use -= width;
        if let Some(index) = record.queue {
            self.queued_seats_in_use -= width;
            self.change(index, |queue| queue.seats_in_use -= width);
        }
        self.note_demand(now);
    }

    /// Whether there are seats for a request. A request wider than the limit runs when no other request runs.
    const fn fits(&self, width: u32) -> bool {
        if width > self.limit {
            self.counts.executing == 0
        } else {
            self.counts.seats_in_use.saturating_add(width) <= self.limit
        }
    }

    /// Caps final_seats at the limit and extends additional_latency so that seat-seconds stay equal.
    fn reshape(&self, work: Work) -> Work {
        if work.final_seats <= self.limit || self.limit == 0 {
            return work;
        }
        let nanos = work.additional_latency.as_nanos() * u128::from(work.final_seats) / u128::from(self.limit);
        let additional_latency = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Work { final_seats: self.limit, additional_latency, ..work }
    }

    /// Advances virtual time to `now`. Must be called before any change.
    fn sync(&mut self, now: Moment) {
        let elapsed = now.since(self.at).as_nanos() as SeatTime;
        self.at = self.at.max(now);
        if self.active_queues > 0 && elapsed > 0 {
            let demand = self.queued_seats_in_use + self.counts.seats_waiting;
            self.progress += elapsed * SeatTime::from(demand.min(self.limit)) / SeatTime::from(self.active_queues);
        }
    }

    /// Changes a queue and updates the data derived from it.
    fn change(&mut self, index: u32, change: impl FnOnce(&mut Queue)) {
        let queue = self.queues.entry(index).or_default();
        let (end_before, active_before) = (queue.end(), queue.is_active());
        change(queue);
        queue.catch_up();
        let (end, active, empty) = (queue.end(), queue.is_active(), queue.is_empty());
        if end != end_before {
            end_before.map(|end| self.ready.remove(&(end, index)));
            end.map(|end| self.ready.insert((end, index)));
        }
        match (active_before, active) {
            (false, true) => self.active_queues += 1,
            (true, false) => self.active_queues -= 1,
            (true, true) | (false, false) => {}
        }
        if empty {
            self.queues.remove(&index);
        }
    }

    fn note_demand(&mut self, now: Moment) {
        self.demand.set(self.counts.seats_in_use.saturating_add(self.counts.seats_waiting), now);
    }
}

/// Returns the estimated total work of a request.
fn total_work(work: Work) -> SeatTime {
    let lingering = work.additional_latency.as_nanos() as SeatTime;
    SeatTime::from(work.initial_seats) * SERVICE_NANOS + SeatTime::from(work.final_seats) * lingering
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
