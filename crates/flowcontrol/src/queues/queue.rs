//! One queue: who waits in it, and where it stands in virtual time.

use std::collections::VecDeque;

use super::{SeatTime, total_work};
use crate::Work;

/// A queue that has something to do.
#[derive(Debug, Default)]
pub struct Queue {
    /// Where in virtual time its next request begins.
    pub next_dispatch: SeatTime,
    /// Who waits, oldest first.
    pub waiting: VecDeque<Waiting>,
    /// The work of who waits.
    pub waiting_work: SeatTime,
    /// How many of its requests run.
    pub executing: u32,
    /// The seats that its requests take.
    pub seats_in_use: u32,
}

/// A request in a queue.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Which one.
    pub slot: u32,
    /// What it is guessed to be.
    pub work: SeatTime,
    /// When it arrived, in virtual time.
    pub arrival: SeatTime,
}

impl Queue {
    /// Whether it takes part in virtual time.
    pub fn is_active(&self) -> bool {
        self.executing > 0 || !self.waiting.is_empty()
    }

    /// Whether nothing is left of it.
    pub fn is_empty(&self) -> bool {
        !self.is_active() && self.seats_in_use == 0
    }

    /// Where in virtual time its next request would end.
    pub fn end(&self) -> Option<SeatTime> {
        self.waiting.front().map(|head| self.next_dispatch + head.work)
    }

    /// A queue that had nothing to do begins where the others are.
    pub fn begin(&mut self, progress: SeatTime) {
        if !self.is_active() {
            self.next_dispatch = progress;
        }
    }

    /// A request begins no earlier than it arrived, so that a queue that cannot use its share does not save it up.
    pub fn catch_up(&mut self) {
        if let Some(head) = self.waiting.front() {
            self.catch_up_with(head.arrival);
        }
    }

    /// The same for a request that does not wait.
    pub fn catch_up_with(&mut self, arrival: SeatTime) {
        self.next_dispatch = self.next_dispatch.max(arrival);
    }

    pub fn push(&mut self, waiting: Waiting) {
        self.waiting_work += waiting.work;
        self.waiting.push_back(waiting);
    }

    pub fn pop(&mut self) {
        if let Some(head) = self.waiting.pop_front() {
            self.waiting_work -= head.work;
        }
    }

    /// A request of this queue takes its seats, and the queue is charged what it is guessed to be.
    pub fn start(&mut self, work: Work) {
        self.executing += 1;
        self.seats_in_use += work.width();
        self.next_dispatch += total_work(work);
    }

    pub fn remove(&mut self, slot: u32) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.slot == slot) {
            let gone = self.waiting.remove(at).expect("the position was just found");
            self.waiting_work -= gone.work;
        }
    }
}
