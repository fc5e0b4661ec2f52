//! Invariant: all members apply the same entry at an index, in every life.

use std::collections::BTreeMap;

use consensus::CommittedEntry;

use super::Violation;

/// The entry applied at each index.
#[derive(Debug, Default)]
pub struct CommittedIsImmutable(BTreeMap<u64, (u64, CommittedEntry)>);

impl CommittedIsImmutable {
    /// Records that a member applied an entry.
    pub fn applied(&mut self, member: u64, entry: &CommittedEntry) -> Result<(), Violation> {
        let index = index(entry);
        let (first, known) = self.0.entry(index).or_insert_with(|| (member, entry.clone()));
        if known == entry {
            return Ok(());
        }
        let what = format!("at index {index} member {first} applied {known:?} and member {member} applied {entry:?}");
        Err(("committed is immutable", what))
    }
}

fn index(entry: &CommittedEntry) -> u64 {
    match entry {
        CommittedEntry::Empty { index }
        | CommittedEntry::Command { index, .. }
        | CommittedEntry::Overtaken { index, .. }
        | CommittedEntry::Changed { index, .. } => *index,
    }
}
