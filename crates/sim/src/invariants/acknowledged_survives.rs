//! Invariant: an acknowledged write is in the history of the state forever.

use std::collections::BTreeMap;

use mvcc::State;

use super::Violation;
use crate::clients::Operation;

pub(crate) fn check(history: &[Operation], state: &State) -> Result<(), Violation> {
    let events: BTreeMap<i64, Option<Vec<u8>>> = state
        .all_events(0)
        .map(|event| (event.record.mod_revision, (!event.record.is_tombstone()).then(|| event.record.value().to_vec())))
        .collect();
    for operation in history.iter().filter(|operation| operation.wrote()) {
        let Some(end) = operation.end else { continue };
        let expect = operation.written().map(|value| value.to_string().into_bytes());
        if events.get(&end.revision) != Some(&expect) {
            let found = events.get(&end.revision);
            return Err((
                "acknowledged writes survive",
                format!("{operation:?} is missing; at its revision is {found:?}"),
            ));
        }
    }
    Ok(())
}
