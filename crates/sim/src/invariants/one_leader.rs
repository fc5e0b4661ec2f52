//! Invariant: at most one member is leader in a term.

use std::collections::BTreeMap;

use super::Violation;

/// The leader of each term.
#[derive(Debug, Default)]
pub struct OneLeader(BTreeMap<u64, u64>);

impl OneLeader {
    /// Records that a member became leader.
    pub fn leads(&mut self, term: u64, member: u64) -> Result<(), Violation> {
        match self.0.insert(term, member) {
            Some(other) if other != member => {
                Err(("one leader per term", format!("members {other} and {member} both led in term {term}")))
            }
            _ => Ok(()),
        }
    }
}
