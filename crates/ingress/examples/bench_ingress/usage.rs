//! CPU time and memory of a process and its children.

use std::time::Duration;

use anyhow::{Context, Result};

#[derive(Debug, Default)]
pub(crate) struct Usage {
    pub cpu: Duration,
    /// Memory, with shared pages divided among the processes that map them (PSS).
    pub memory_bytes: u64,
}

impl Usage {
    pub(crate) fn of(pid: u32) -> Result<Usage> {
        let mut usage = Usage::default();
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).context("a proxy has exited")?;
        for task in tasks {
            let task = task?.path();
            let times = std::fs::read_to_string(task.join("schedstat"))?;
            let running = times.split(' ').next().and_then(|nanos| nanos.parse().ok());
            usage.cpu += Duration::from_nanos(running.context("the kernel has no scheduler statistics")?);
            for child in std::fs::read_to_string(task.join("children"))?.split_whitespace() {
                let child = Usage::of(child.parse()?)?;
                usage.cpu += child.cpu;
                usage.memory_bytes += child.memory_bytes;
            }
        }
        let memory = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let line = memory.lines().find_map(|line| line.strip_prefix("Pss:")).context("there is no PSS")?;
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
        usage.memory_bytes += kilobytes * 1024;
        Ok(usage)
    }
}
