//! Invariant: all members apply the same entry at an index, in every life.

use std::collections::BTreeMap;

use consensus::Committed;

use super::Broken;

/// The entry applied at each index.
#[derive(Debug, Default)]
pub struct CommittedIsImmutable(BTreeMap<u64, (u64, Committed)>);

impl CommittedIsImmutable {
    /// Records that a member applied an entry.
    pub fn applied(&mut self, member: u64, entry: &Committed) -> Result<(), Broken> {
        let index = index(entry);
        let (first, known) = self.0.entry(index).or_insert_with(|| (member, entry.clone()));
        if known == entry {
            return Ok(());
        }
        let what = format!("at index {index} member {first} applied {known:?} and member {member} applied {entry:?}");
        Err(("committed is immutable", what))
    }
}

fn index(entry: &Committed) -> u64 {
    match entry {
        Committed::Empty { index }
        | Committed::Command { index, .. }
        | Committed::Overtaken { index, .. }
        | Committed::Changed { index, .. } => *index,
    }
}
