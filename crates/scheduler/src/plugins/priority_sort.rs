//! PrioritySort: orders pending pods by priority, then by time in the queue.

use std::cmp::Reverse;

/// Sort key of a pod in the active queue, lowest first.
pub type Turn = (Reverse<i32>, u64);

/// Returns the sort key of a pod with this priority that was queued as the `sequence`-th.
pub const fn turn(priority: i32, sequence: u64) -> Turn {
    (Reverse(priority), sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_precedes_waiting_time() {
        let mut pods = [(0, 1), (5, 9), (5, 2)];
        pods.sort_by_key(|(priority, sequence)| turn(*priority, *sequence));
        assert_eq!(pods, [(5, 2), (5, 9), (0, 1)]);
    }
}
