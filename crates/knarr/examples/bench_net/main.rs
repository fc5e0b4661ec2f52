//! Benchmark of Services and DNS: latency of endpoint changes, overhead of the data path, and DNS throughput.
//!
//! Everything runs in temporary network namespaces. The host's network is not changed.

mod first;
mod names;
mod rules;
mod spaces;
mod traffic;

use anyhow::{Result, ensure};

fn main() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root");
    rules::measure()?;
    traffic::measure()?;
    names::measure()?;
    first::measure()
}

/// Returns the given percentile of a sorted slice.
fn percentile<T: Ord + Copy>(sorted: &[T], percent: usize) -> T {
    sorted[(sorted.len() - 1) * percent / 100]
}
