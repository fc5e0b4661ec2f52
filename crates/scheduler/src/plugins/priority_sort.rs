//! PrioritySort: the more important pod goes first, of equals the one that waits longer.

use std::cmp::Ordering;

/// The order of two pods by priority and by when they began to wait.
pub fn order(a: (i32, u64), b: (i32, u64)) -> Ordering {
    b.0.cmp(&a.0).then(a.1.cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_comes_before_patience() {
        let mut pods = [(0, 1), (5, 9), (5, 2)];
        pods.sort_by(|a, b| order(*a, *b));
        assert_eq!(pods, [(5, 2), (5, 9), (0, 1)]);
    }
}
