//! PrioritySort: the more important pod goes first, of equals the one that waits longer.

use std::cmp::Reverse;

/// A pod's place in the line, the first being the lowest.
pub type Turn = (Reverse<i32>, u64);

/// The place of a pod of this priority that began to wait as the `sequence`-th.
pub const fn turn(priority: i32, sequence: u64) -> Turn {
    (Reverse(priority), sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_comes_before_patience() {
        let mut pods = [(0, 1), (5, 9), (5, 2)];
        pods.sort_by_key(|(priority, sequence)| turn(*priority, *sequence));
        assert_eq!(pods, [(5, 2), (5, 9), (0, 1)]);
    }
}
