//! Numbers that only grow, for monitoring.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::probe::Kind;

/// Answers of probes: by kind, successes then failures.
static PROBES: [[AtomicU64; 2]; 3] = [const { [const { AtomicU64::new(0) }; 2] }; 3];

/// A probe was answered.
pub fn probed(kind: Kind, success: bool) {
    PROBES[kind as usize][usize::from(!success)].fetch_add(1, Ordering::Relaxed);
}

/// How often probes were answered how.
pub fn probes() -> Vec<(&'static str, &'static str, u64)> {
    let results = ["successful", "failed"];
    let of = |kind: Kind| {
        results
            .into_iter()
            .enumerate()
            .map(move |(at, result)| (kind.word(), result, PROBES[kind as usize][at].load(Ordering::Relaxed)))
    };
    Kind::ALL.into_iter().flat_map(of).collect()
}
