//! Invariant: the history of every key is linearizable. Wing and Gong's search, with Lowe's memory of dead ends.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use crate::clients::{End, Kind, Operation};

const NAME: &str = "linearizable";
/// Maximum number of operations per key, the size of the search's bit set.
const OPERATIONS_MAX: usize = 128;

/// Checks a history, given all values ever written according to the final state.
pub(crate) fn check(history: &[Operation], written: &BTreeSet<u64>) -> Result<(), Violation> {
    let mut by_key: BTreeMap<usize, Vec<Operation>> = BTreeMap::new();
    for operation in history.iter().filter_map(|operation| resolve(*operation, written)) {
        by_key.entry(operation.key).or_default().push(operation);
    }
    for (key, operations) in by_key {
        assert!(
            operations.len() <= OPERATIONS_MAX,
            "{} operations on one key are more than the search takes",
            operations.len()
        );
        if !(Search { operations: &operations, dead: BTreeSet::new() }).runs(0, None) {
            return Err((NAME, format!("key {key} has no order that explains {operations:#?}")));
        }
    }
    Ok(())
}

/// Resolves an unknown outcome: values are unique, so the final state shows whether a write happened. An unanswered
/// read is dropped.
fn resolve(operation: Operation, written: &BTreeSet<u64>) -> Option<Operation> {
    match (operation.end, operation.kind) {
        (Some(_), _) | (None, Kind::Delete) => Some(operation),
        (None, Kind::Get) => None,
        (None, Kind::Put(value) | Kind::Swap(_, value)) => {
            let end = End { at_ms: u64::MAX, revision: 0, read: None, succeeded: true };
            written.contains(&value).then_some(Operation { end: Some(end), ..operation })
        }
    }
}

struct Search<'a> {
    operations: &'a [Operation],
    /// Sets of executed operations and the resulting value from which no continuation exists.
    dead: BTreeSet<(u128, Option<u64>)>,
}

impl Search<'_> {
    /// Whether the remaining operations can follow, given the executed ones and the resulting value.
    fn runs(&mut self, done: u128, value: Option<u64>) -> bool {
        let open = |index: &usize| done & (1 << index) == 0;
        let indexes = || (0..self.operations.len()).filter(open);
        // An operation cannot be ordered before one that ended before it started. Operations with unknown outcome are
        // optional.
        let ends = indexes().filter_map(|index| self.operations[index].end.map(|end| end.at_ms));
        let Some(horizon) = ends.min() else { return true };
        if self.dead.contains(&(done, value)) {
            return false;
        }
        let mut next: Vec<usize> = indexes().filter(|index| self.operations[*index].began_ms <= horizon).collect();
        // Unknown ones are tried last, because they are rarely needed.
        next.sort_by_key(|index| self.operations[*index].end.map_or(u64::MAX, |end| end.at_ms));
        for index in next {
            let operation = self.operations[index];
            let Some(after) = operation.follows(value) else { continue };
            let idle = operation.end.is_none() && after == value;
            if !idle && self.runs(done | (1 << index), after) {
                return true;
            }
        }
        self.dead.insert((done, value));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(kind: Kind, began_ms: u64, end: Option<(u64, Option<u64>)>) -> Operation {
        let end = end.map(|(at_ms, read)| End { at_ms, revision: 0, read, succeeded: true });
        Operation { key: 0, kind, began_ms, end }
    }

    fn is_linearizable(history: &[Operation]) -> bool {
        check(history, &BTreeSet::from([1])).is_ok()
    }

    #[test]
    fn read_after_a_write_must_return_it() {
        let put = operation(Kind::Put(1), 0, Some((10, None)));
        assert!(is_linearizable(&[put, operation(Kind::Get, 20, Some((30, Some(1))))]));
        assert!(!is_linearizable(&[put, operation(Kind::Get, 20, Some((30, None)))]));
        assert!(is_linearizable(&[put, operation(Kind::Get, 5, Some((30, None)))]), "they overlap");
    }

    #[test]
    fn unknown_write_may_apply_late_or_never_but_not_disappear() {
        let put = operation(Kind::Put(1), 0, None);
        let get = |began_ms, read| operation(Kind::Get, began_ms, Some((began_ms + 5, read)));
        assert!(is_linearizable(&[put, get(10, None), get(20, Some(1))]));
        assert!(is_linearizable(&[put, get(10, None), get(20, None)]));
        assert!(is_linearizable(&[operation(Kind::Put(2), 0, None), get(10, None)]), "it never existed");
        assert!(!is_linearizable(&[put, get(10, Some(1)), get(20, None)]));
    }

    #[test]
    fn two_swaps_from_the_same_value_cannot_both_succeed() {
        let swap = |new, at| operation(Kind::Swap(None, new), at, Some((at + 5, None)));
        assert!(!is_linearizable(&[swap(1, 0), swap(2, 0)]));
        let failed = Operation { end: Some(End { at_ms: 5, revision: 0, read: None, succeeded: false }), ..swap(2, 0) };
        assert!(is_linearizable(&[swap(1, 0), failed]));
    }
}
