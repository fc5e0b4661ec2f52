//! CPU time and memory of processes, from /proc.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

/// CPU time that a set of processes has used.
#[derive(Clone, Copy)]
pub(crate) struct Sample(Duration);

impl Sample {
    /// Sums the processes whose command line contains one of `parts`.
    pub(crate) fn of(parts: &[String]) -> Self {
        let ticks: u64 = matching(|line| parts.iter().any(|part| line.contains(part.as_str())))
            .iter()
            .filter_map(|dir| {
                let stat = fs::read_to_string(dir.join("stat")).ok()?;
                let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
                Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
            })
            .sum();
        // USER_HZ is 100 on all supported architectures.
        Self(Duration::from_millis(ticks * 10))
    }

    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Returns the average private memory of the processes whose command line contains `part`.
pub(crate) fn private_kib(part: &str) -> Result<u64> {
    let found: Vec<u64> = matching(|line| line.contains(part))
        .iter()
        .filter_map(|dir| {
            let rollup = fs::read_to_string(dir.join("smaps_rollup")).ok()?;
            let of = |line: &str| line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
            Some(rollup.lines().filter(|line| line.starts_with("Private_")).filter_map(of).sum())
        })
        .collect();
    ensure!(!found.is_empty(), "no shim process found");
    Ok(found.iter().sum::<u64>() / found.len() as u64)
}

fn matching(is: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let dirs = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let line = |dir: &PathBuf| String::from_utf8_lossy(&fs::read(dir.join("cmdline")).unwrap_or_default()).into_owned();
    dirs.filter(|dir| is(&line(dir))).collect()
}
