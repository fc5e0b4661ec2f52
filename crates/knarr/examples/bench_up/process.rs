//! CPU time and memory of a process, from /proc.

use std::time::Duration;

use anyhow::{Context, Result};

/// A process by its PID.
#[derive(Clone, Copy)]
pub(crate) struct Process(pub u32);

impl Process {
    /// Returns the CPU time that the process has used.
    pub(crate) fn processor_time(self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0))?;
        let fields: Vec<&str> = stat.rsplit_once(')').context("a process has a name")?.1.split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok());
        let ticks = ticks(11).zip(ticks(12)).context("a process has CPU time")?;
        // USER_HZ is 100 on all supported architectures.
        Ok(Duration::from_millis((ticks.0 + ticks.1) * 10))
    }

    /// Returns the resident memory, and the part of it that is not file-backed.
    pub(crate) fn memory_kib(self) -> Result<(u64, u64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0))?;
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).context("a process has memory")?;
            let number = line.trim_start_matches(':').trim().trim_end_matches("kB").trim();
            number.parse::<u64>().context("memory is a number")
        };
        Ok((of("VmRSS")?, of("RssAnon")?))
    }
}
