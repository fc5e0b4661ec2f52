//! Slab of the requests of a level, with reused slots.

use crate::{Moment, Work};

/// Requests in slots. A slot is reused after its request ends, and the serial distinguishes the requests.
#[derive(Debug, Default)]
pub(super) struct Slots {
    records: Vec<Option<Record>>,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub tag: Tag,
    pub work: Work,
    /// The queue of a request that waits or waited.
    pub queue: Option<u32>,
    pub arrived: Moment,
    /// The time of admission.
    pub started: Moment,
    pub phase: Phase,
}

/// The identity of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// A unique number.
    pub serial: u64,
    /// The index of its metrics series.
    pub series: u32,
    pub is_mutating: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Waiting,
    Running,
    /// Finished, but still holding its seats for the additional latency.
    Lingering,
}

impl Slots {
    pub(super) fn insert(&mut self, record: Record) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.records[slot as usize] = Some(record);
            return slot;
        }
        let slot = u32::try_from(self.records.len()).expect("slot numbers fit into u32");
        self.records.push(Some(record));
        slot
    }

    pub(super) fn get(&self, slot: u32, serial: u64) -> Option<&Record> {
        self.records.get(slot as usize)?.as_ref().filter(|record| record.tag.serial == serial)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        self.records.iter_mut().flatten()
    }

    pub(super) fn at(&self, slot: u32) -> &Record {
        self.records[slot as usize].as_ref().expect("a referenced slot is in use")
    }

    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Record {
        self.records[slot as usize].as_mut().expect("a referenced slot is in use")
    }

    pub(super) fn remove(&mut self, slot: u32) -> Record {
        self.free.push(slot);
        self.records[slot as usize].take().expect("a referenced slot is in use")
    }
}
