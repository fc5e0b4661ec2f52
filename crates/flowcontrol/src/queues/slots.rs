//! The requests of a level, by small numbers that are used again.

use crate::{Moment, Work};

/// Requests in slots; a slot is used again when its request is over, and the serial tells one request from the next.
#[derive(Debug, Default)]
pub struct Slots {
    records: Vec<Option<Record>>,
    free: Vec<u32>,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// What tells it from others.
    pub tag: Tag,
    /// The seats it takes.
    pub work: Work,
    /// The queue it waits or waited in.
    pub queue: Option<u32>,
    /// When it arrived.
    pub arrived: Moment,
    /// When it was let in.
    pub started: Moment,
    /// How far it is.
    pub phase: Phase,
}

/// What tells a request from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// A number that no other request has.
    pub serial: u64,
    /// Where it is counted.
    pub series: u32,
    /// Whether it changes something.
    pub is_mutating: bool,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In its queue.
    Waiting,
    /// In its seats.
    Running,
    /// Answered, its consequences in its seats.
    Lingering,
}

impl Slots {
    pub fn insert(&mut self, record: Record) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.records[slot as usize] = Some(record);
            return slot;
        }
        let slot = u32::try_from(self.records.len()).expect("memory ends before slots do");
        self.records.push(Some(record));
        slot
    }

    pub fn get(&self, slot: u32, serial: u64) -> Option<&Record> {
        self.records.get(slot as usize)?.as_ref().filter(|record| record.tag.serial == serial)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().flatten()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        self.records.iter_mut().flatten()
    }

    pub fn at(&self, slot: u32) -> &Record {
        self.records[slot as usize].as_ref().expect("a slot that is named somewhere is in use")
    }

    pub fn at_mut(&mut self, slot: u32) -> &mut Record {
        self.records[slot as usize].as_mut().expect("a slot that is named somewhere is in use")
    }

    pub fn remove(&mut self, slot: u32) -> Record {
        self.free.push(slot);
        self.records[slot as usize].take().expect("a slot that is named somewhere is in use")
    }
}
