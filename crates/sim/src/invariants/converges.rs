//! Invariant: after the faults end, all members reach the same state, and every operation succeeds.

use mvcc::State;

use super::Violation;
use crate::clients::Operation;

const NAME: &str = "everything converges";

pub(crate) fn check(
    states: &[(u64, Option<State>)],
    history: &[Operation],
    healthy_since_ms: u64,
) -> Result<(), Violation> {
    let mut seen: Option<(u64, u64, i64, Option<u32>)> = None;
    for (member, state) in states {
        let Some(state) = state else { return Err((NAME, format!("member {member} is down"))) };
        if !state.alarms().is_empty() {
            return Err((NAME, format!("member {member} still has alarms: {:?}", state.alarms())));
        }
        let (index, revision, hash) = (state.applied_index(), state.revision(), state.hash_kv(0).ok());
        match seen {
            Some((other, first, its, its_hash)) if (first, its, its_hash) != (index, revision, hash) => {
                let what = format!(
                    "member {other} stands at index {first}, revision {its}, hash {its_hash:?}; member {member} at {index}, {revision}, {hash:?}"
                );
                return Err((NAME, what));
            }
            _ => seen = Some((*member, index, revision, hash)),
        }
    }
    let stuck = history.iter().find(|operation| operation.began_ms >= healthy_since_ms && operation.end.is_none());
    stuck.map_or(Ok(()), |operation| Err((NAME, format!("no response after all faults ended: {operation:?}"))))
}
