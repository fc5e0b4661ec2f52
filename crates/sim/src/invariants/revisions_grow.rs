//! Invariant: revisions never decrease, in one life of a member and for a client that waits for its responses.

use std::collections::BTreeMap;

use super::Violation;
use crate::clients::Operation;

const NAME: &str = "revisions grow";

/// The newest revision per life of a member.
#[derive(Debug, Default)]
pub struct RevisionsGrow(BTreeMap<(u64, u64), i64>);

impl RevisionsGrow {
    /// Records the revision of a member's state.
    pub fn stands(&mut self, member: u64, life: u64, revision: i64) -> Result<(), Violation> {
        match self.0.insert((member, life), revision) {
            Some(before) if before > revision => {
                Err((NAME, format!("member {member} went from revision {before} back to {revision}")))
            }
            _ => Ok(()),
        }
    }
}

/// Checks that an operation started after another ended has no older revision, and a write a newer one.
pub(crate) fn check(history: &[Operation]) -> Result<(), Violation> {
    let mut completed: Vec<(u64, i64)> =
        history.iter().filter_map(|operation| operation.end.map(|end| (end.at_ms, end.revision))).collect();
    completed.sort_unstable();
    let mut newest = Vec::with_capacity(completed.len());
    for (at_ms, revision) in completed {
        let best = newest.last().map_or(revision, |(_, best): &(u64, i64)| revision.max(*best));
        newest.push((at_ms, best));
    }
    for operation in history {
        let Some(end) = operation.end else { continue };
        let before = newest.partition_point(|(at_ms, _)| *at_ms < operation.began_ms);
        let Some((_, floor)) = before.checked_sub(1).map(|last| newest[last]) else { continue };
        let least = if operation.wrote() { floor + 1 } else { floor };
        if end.revision < least {
            return Err((NAME, format!("revision {floor} was seen before this began: {operation:?}")));
        }
    }
    Ok(())
}
