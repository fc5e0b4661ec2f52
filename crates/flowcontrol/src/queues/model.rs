//! Reference model of fair queuing: a direct implementation that scans all queues.

use std::collections::BTreeMap;

use super::{SERVICE_NANOS, SeatTime, total_work};
use crate::level::Queuing;
use crate::{Moment, Work};

#[derive(Debug)]
pub(super) struct Model {
    queuing: Queuing,
    limit: u32,
    queues: Vec<Queue>,
    progress: SeatTime,
    at: Moment,
    robin: usize,
    enqueues: usize,
    /// Running and lingering requests: queue, start time and work.
    running: BTreeMap<u64, (usize, Moment, Work)>,
    lingering: BTreeMap<u64, (usize, Moment, Work)>,
}

#[derive(Debug, Default)]
struct Queue {
    next_dispatch: SeatTime,
    waiting: Vec<(u64, Work, SeatTime)>,
}

impl Model {
    pub(super) fn new(queuing: Queuing, limit: u32) -> Self {
        let queues = (0..queuing.queues).map(|_| Queue::default()).collect();
        let (running, lingering) = (BTreeMap::new(), BTreeMap::new());
        Self { queuing, limit, queues, progress: 0, at: Moment::default(), robin: 0, enqueues: 0, running, lingering }
    }

    pub(super) fn running(&self) -> Vec<u64> {
        self.running.keys().copied().collect()
    }

    /// Handles an arrival. Returns whether the request was accepted.
    pub(super) fn arrive(&mut self, serial: u64, work: Work, hash: u64, now: Moment) -> bool {
        self.sync(now);
        let hand = self.queuing.dealer.deal(hash);
        let cards = hand.cards();
        let offset = self.enqueues % cards.len();
        self.enqueues += 1;
        let mut best: Option<(SeatTime, usize)> = None;
        for step in 0..cards.len() {
            let index = cards[(offset + step) % cards.len()] as usize;
            let sum = self.queues[index].waiting.iter().map(|(_, work, _)| total_work(*work)).sum();
            if best.is_none_or(|(least, _)| sum < least) {
                best = Some((sum, index));
            }
        }
        let (_, index) = best.unwrap();
        if self.queues[index].waiting.len() >= self.queuing.length_max as usize {
            return false;
        }
        let busy = self.running.values().any(|(queue, ..)| *queue == index);
        let queue = &mut self.queues[index];
        if queue.waiting.is_empty() && !busy {
            queue.next_dispatch = self.progress;
        }
        queue.waiting.push((serial, work, self.progress));
        self.bound(index);
        self.dispatch_all(now);
        true
    }

    pub(super) fn finish(&mut self, serial: u64, now: Moment) {
        self.sync(now);
        let (index, started, work) = self.running.remove(&serial).unwrap();
        let took = now.since(started).as_nanos() as SeatTime;
        self.queues[index].next_dispatch -= SeatTime::from(work.initial_seats) * (SERVICE_NANOS - took);
        self.bound(index);
        if !work.additional_latency.is_zero() {
            self.lingering.insert(serial, (index, now.plus(work.additional_latency), work));
        }
        self.dispatch_all(now);
    }

    pub(super) fn leave(&mut self, serial: u64, now: Moment) {
        self.sync(now);
        for index in 0..self.queues.len() {
            self.queues[index].waiting.retain(|(have, ..)| *have != serial);
            self.bound(index);
        }
        self.dispatch_all(now);
    }

    pub(super) fn wake(&mut self, now: Moment) {
        if self.lingering.values().any(|(_, until, _)| *until <= now) {
            self.sync(now);
            self.lingering.retain(|_, (_, until, _)| *until > now);
            self.dispatch_all(now);
        }
    }

    pub(super) fn set_limit(&mut self, limit: u32, now: Moment) {
        self.sync(now);
        self.limit = limit;
        self.dispatch_all(now);
    }

    fn seats_in_use(&self) -> u32 {
        self.running.values().chain(self.lingering.values()).map(|(_, _, work)| work.width()).sum()
    }

    fn sync(&mut self, now: Moment) {
        let elapsed = now.since(self.at).as_nanos() as SeatTime;
        self.at = now;
        let runs = |index: usize| self.running.values().any(|(queue, ..)| *queue == index);
        let active = (0..self.queues.len()).filter(|index| runs(*index) || !self.queues[*index].waiting.is_empty());
        let active = active.count() as SeatTime;
        let waiting = self.queues.iter().flat_map(|queue| &queue.waiting).map(|(_, work, _)| work.width());
        let demand = self.seats_in_use() + waiting.sum::<u32>();
        if active > 0 {
            self.progress += elapsed * SeatTime::from(demand.min(self.limit)) / active;
        }
    }

    fn dispatch_all(&mut self, now: Moment) {
        while self.seats_in_use() < self.limit {
            let mut best: Option<(SeatTime, usize)> = None;
            for step in 1..=self.queues.len() {
                let index = (self.robin + step) % self.queues.len();
                let queue = &self.queues[index];
                let Some((_, work, _)) = queue.waiting.first() else { continue };
                let end = queue.next_dispatch + total_work(*work);
                if best.is_none_or(|(least, _)| end < least) {
                    best = Some((end, index));
                }
            }
            let Some((_, index)) = best else { return };
            let (serial, work, _) = self.queues[index].waiting[0];
            let fits = if work.width() > self.limit {
                self.running.is_empty()
            } else {
                self.seats_in_use() + work.width() <= self.limit
            };
            if !fits {
                return;
            }
            self.robin = index;
            self.queues[index].waiting.remove(0);
            let work = self.reshape(work);
            self.queues[index].next_dispatch += total_work(work);
            self.running.insert(serial, (index, now, work));
            self.bound(index);
        }
    }

    fn reshape(&self, work: Work) -> Work {
        if work.final_seats <= self.limit {
            return work;
        }
        let nanos = work.additional_latency.as_nanos() as u64 * u64::from(work.final_seats) / u64::from(self.limit);
        Work { final_seats: self.limit, additional_latency: std::time::Duration::from_nanos(nanos), ..work }
    }

    fn bound(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        if let Some((_, _, arrival)) = queue.waiting.first() {
            queue.next_dispatch = queue.next_dispatch.max(*arrival);
        }
    }
}
