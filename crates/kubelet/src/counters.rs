//! Numbers that only grow, for monitoring.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::probe::{Kind, Problem};

/// Answers of probes: by kind, successes, then failures, then those that nobody gave.
static PROBES: [[AtomicU64; 3]; 3] = [const { [const { AtomicU64::new(0) }; 3] }; 3];

/// A probe was made.
pub fn probed(kind: Kind, problem: Option<&Problem>) {
    let result = match problem {
        None => 0,
        Some(Problem::Failed(_)) => 1,
        Some(Problem::Unasked(_)) => 2,
    };
    PROBES[kind as usize][result].fetch_add(1, Ordering::Relaxed);
}

/// How often probes were answered how.
pub fn probes() -> Vec<(&'static str, &'static str, u64)> {
    let results = ["successful", "failed", "unknown"];
    let of = |kind: Kind| {
        results
            .into_iter()
            .enumerate()
            .map(move |(at, result)| (kind.word(), result, PROBES[kind as usize][at].load(Ordering::Relaxed)))
    };
    Kind::ALL.into_iter().flat_map(of).collect()
}
