//! Invariant: uncompacted history reads the same at every revision and from every member.

use mvcc::State;

use super::Violation;
use crate::chronicle::Chronicle;

pub(crate) fn check(states: &[(u64, Option<State>)], chronicle: &Chronicle) -> Result<(), Violation> {
    let known = states.iter().filter_map(|(member, state)| state.as_ref().map(|state| (member, state)));
    for (member, state) in known {
        let (actual, compacted) = (state.compact_revision(), chronicle.compacted());
        if actual != compacted {
            return Err((
                "history is kept",
                format!("member {member} compacted {actual}, the request was {compacted}"),
            ));
        }
        if let Some(revision) = chronicle.first_difference(state) {
            return Err((
                "history is kept",
                format!("member {member} returns a different state for revision {revision}"),
            ));
        }
    }
    Ok(())
}
