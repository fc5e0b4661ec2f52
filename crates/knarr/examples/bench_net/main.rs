//! How fast services follow their endpoints, what they cost on the way, and how many names are answered.
//!
//! Everything happens in network namespaces that are gone afterwards; the machine's own network is not touched.

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

/// The value below which so many of a hundred are.
fn percentile<T: Ord + Copy>(sorted: &[T], percent: usize) -> T {
    sorted[(sorted.len() - 1) * percent / 100]
}
