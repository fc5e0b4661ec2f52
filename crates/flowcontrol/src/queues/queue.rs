//! One queue: its waiting requests and its virtual time.

use std::collections::VecDeque;

use super::{SeatTime, total_work};
use crate::Work;

/// A queue with requests.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The virtual start time of its next request.
    pub next_dispatch: SeatTime,
    /// The waiting requests, oldest first.
    pub waiting: VecDeque<Waiting>,
    /// The total work of the waiting requests.
    pub waiting_work: SeatTime,
    /// The number of running requests.
    pub executing: u32,
    /// The seats of running and lingering requests.
    pub seats_in_use: u32,
}

/// A waiting request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub slot: u32,
    /// The estimated work.
    pub work: SeatTime,
    /// The virtual arrival time.
    pub arrival: SeatTime,
}

impl Queue {
    /// Whether the queue takes part in virtual time.
    pub(super) fn is_active(&self) -> bool {
        self.executing > 0 || !self.waiting.is_empty()
    }

    /// Whether the queue has no waiting, running or lingering request.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_active() && self.seats_in_use == 0
    }

    /// Returns the virtual finish time of its next request.
    pub(super) fn end(&self) -> Option<SeatTime> {
        self.waiting.front().map(|head| self.next_dispatch + head.work)
    }

    /// Sets an inactive queue to the current virtual time.
    pub(super) fn activate(&mut self, progress: SeatTime) {
        if !self.is_active() {
            self.next_dispatch = progress;
        }
    }

    /// Advances next_dispatch to the arrival of the next request, so that an idle queue does not accumulate credit.
    pub(super) fn catch_up(&mut self) {
        if let Some(head) = self.waiting.front() {
            self.catch_up_with(head.arrival);
        }
    }

    /// Like [`Queue::catch_up`], for a request that does not wait.
    pub(super) fn catch_up_with(&mut self, arrival: SeatTime) {
        self.next_dispatch = self.next_dispatch.max(arrival);
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.waiting_work += waiting.work;
        self.waiting.push_back(waiting);
    }

    pub(super) fn pop(&mut self) {
        if let Some(head) = self.waiting.pop_front() {
            self.waiting_work -= head.work;
        }
    }

    /// Starts a request: its seats are taken, and the queue is charged the estimated work.
    pub(super) fn start(&mut self, work: Work) {
        self.executing += 1;
        self.seats_in_use += work.width();
        self.next_dispatch += total_work(work);
    }

    pub(super) fn remove(&mut self, slot: u32) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.slot == slot) {
            let removed = self.waiting.remove(at).expect("the position was just found");
            self.waiting_work -= removed.work;
        }
    }
}
