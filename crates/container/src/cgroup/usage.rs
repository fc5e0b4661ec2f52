//! What a control group uses.

use std::fs;
use std::path::{Path, PathBuf};

use super::value_of;

/// What a group uses; what the kernel does not say is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time in nanoseconds.
    pub cpu_nanos: Option<u64>,
    /// Memory, caches included.
    pub memory_bytes: Option<u64>,
    /// Memory without the caches that can go at once.
    pub working_set_bytes: Option<u64>,
    /// Anonymous memory.
    pub rss_bytes: Option<u64>,
    /// The limit, if there is one.
    pub memory_limit_bytes: Option<u64>,
    /// Faults.
    pub page_faults: Option<u64>,
    /// Faults that read the disk.
    pub major_page_faults: Option<u64>,
    /// Swap in use.
    pub swap_bytes: Option<u64>,
    /// Processes.
    pub pids: Option<u64>,
    /// Stalls for want of a processor, memory, input and output.
    pub cpu_pressure: Option<Pressure>,
    /// The same for memory.
    pub memory_pressure: Option<Pressure>,
    /// The same for input and output.
    pub io_pressure: Option<Pressure>,
}

/// Stalls of some and of all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Some waited.
    pub some: Stall,
    /// All waited.
    pub full: Stall,
}

/// Shares of time in percent, and the sum in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    /// Over ten seconds.
    pub avg10: f64,
    /// Over a minute.
    pub avg60: f64,
    /// Over five minutes.
    pub avg300: f64,
    /// Since the start.
    pub total: u64,
}

/// Version 1 says a limit's absence with the largest multiple of a page.
const NO_LIMIT: u64 = 1 << 60;

pub fn separate(file: impl Fn(&str, &str) -> PathBuf) -> Usage {
    let text = |controller: &str, name: &str| fs::read_to_string(file(controller, name)).unwrap_or_default();
    let number = |controller: &str, name: &str| text(controller, name).trim().parse::<u64>().ok();
    let stat = text("memory", "memory.stat");
    let memory = number("memory", "memory.usage_in_bytes");
    let with_swap = number("memory", "memory.memsw.usage_in_bytes");
    Usage {
        cpu_nanos: number("cpuacct", "cpuacct.usage"),
        memory_bytes: memory,
        working_set_bytes: memory.map(|all| all.saturating_sub(value_of(&stat, "total_inactive_file").unwrap_or(0))),
        rss_bytes: value_of(&stat, "total_rss"),
        memory_limit_bytes: number("memory", "memory.limit_in_bytes").filter(|limit| *limit < NO_LIMIT),
        page_faults: value_of(&stat, "total_pgfault").or_else(|| value_of(&stat, "pgfault")),
        major_page_faults: value_of(&stat, "total_pgmajfault").or_else(|| value_of(&stat, "pgmajfault")),
        swap_bytes: with_swap.zip(memory).map(|(both, memory)| both.saturating_sub(memory)),
        pids: number("pids", "pids.current"),
        ..Usage::default()
    }
}

pub fn unified(dir: &Path) -> Usage {
    let text = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    let number = |name: &str| text(name).trim().parse::<u64>().ok();
    let stat = text("memory.stat");
    let memory = number("memory.current");
    Usage {
        cpu_nanos: value_of(&text("cpu.stat"), "usage_usec").map(|micros| micros * 1000),
        memory_bytes: memory,
        working_set_bytes: memory.map(|all| all.saturating_sub(value_of(&stat, "inactive_file").unwrap_or(0))),
        rss_bytes: value_of(&stat, "anon"),
        memory_limit_bytes: number("memory.max"),
        page_faults: value_of(&stat, "pgfault"),
        major_page_faults: value_of(&stat, "pgmajfault"),
        swap_bytes: number("memory.swap.current"),
        pids: number("pids.current"),
        cpu_pressure: pressure(&text("cpu.pressure")),
        memory_pressure: pressure(&text("memory.pressure")),
        io_pressure: pressure(&text("io.pressure")),
    }
}

fn pressure(text: &str) -> Option<Pressure> {
    let mut pressure = Pressure::default();
    let mut found = false;
    for line in text.lines() {
        let (kind, rest) = line.split_once(' ')?;
        let mut stall = Stall::default();
        for field in rest.split(' ') {
            match field.split_once('=')? {
                ("avg10", value) => stall.avg10 = value.parse().ok()?,
                ("avg60", value) => stall.avg60 = value.parse().ok()?,
                ("avg300", value) => stall.avg300 = value.parse().ok()?,
                ("total", value) => stall.total = value.parse().ok()?,
                _ => {}
            }
        }
        match kind {
            "some" => pressure.some = stall,
            "full" => pressure.full = stall,
            _ => continue,
        }
        found = true;
    }
    found.then_some(pressure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_line_by_line() {
        let text =
            "some avg10=1.50 avg60=0.20 avg300=0.00 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        let read = pressure(text).unwrap();
        assert_eq!((read.some.avg10, read.some.total, read.full.total), (1.5, 1234, 7));
        assert_eq!(pressure(""), None);
    }
}
