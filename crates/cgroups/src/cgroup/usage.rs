//! Resource usage of a cgroup.

use std::fs;
use std::path::{Path, PathBuf};

use super::value_of;

/// Resource usage; `None` for values that the kernel does not report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Total CPU time.
    pub cpu_nanos: Option<u64>,
    /// CPU time in user mode.
    pub cpu_user_nanos: Option<u64>,
    /// CPU time in kernel mode.
    pub cpu_system_nanos: Option<u64>,
    /// Number of elapsed CFS periods.
    pub cpu_periods: Option<u64>,
    /// Number of periods in which the quota was exhausted.
    pub cpu_throttled_periods: Option<u64>,
    /// Total time for which processes were throttled.
    pub cpu_throttled_nanos: Option<u64>,
    /// CPU weight in cgroup v1 shares.
    pub cpu_shares: Option<u64>,
    /// CFS quota per period; `None` for no limit.
    pub cpu_quota_micros: Option<u64>,
    /// CFS period.
    pub cpu_period_micros: Option<u64>,
    /// Memory including page cache.
    pub memory_bytes: Option<u64>,
    /// Maximum of `memory_bytes`.
    pub memory_peak_bytes: Option<u64>,
    /// Number of times the memory limit was hit.
    pub memory_limit_hits: Option<u64>,
    /// Page cache.
    pub cache_bytes: Option<u64>,
    /// Mapped page cache.
    pub mapped_bytes: Option<u64>,
    /// Memory without reclaimable page cache.
    pub working_set_bytes: Option<u64>,
    /// Anonymous memory.
    pub rss_bytes: Option<u64>,
    /// `None` for no limit.
    pub memory_limit_bytes: Option<u64>,
    pub page_faults: Option<u64>,
    /// Page faults that needed disk reads.
    pub major_page_faults: Option<u64>,
    pub swap_bytes: Option<u64>,
    /// Number of processes and threads.
    pub pids: Option<u64>,
    /// Pressure stall information.
    pub cpu_pressure: Option<Pressure>,
    pub memory_pressure: Option<Pressure>,
    pub io_pressure: Option<Pressure>,
}

/// Pressure stall information of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// At least one process stalled.
    pub some: Stall,
    /// All processes stalled.
    pub full: Stall,
}

/// Stall times as percentages, and their total in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    /// Over 10 seconds.
    pub avg10: f64,
    /// Over 60 seconds.
    pub avg60: f64,
    /// Over 300 seconds.
    pub avg300: f64,
    pub total: u64,
}

/// Values of this size and above mean no limit on cgroup v1, which reports the largest multiple of the page size.
const NO_LIMIT: u64 = 1 << 60;

/// Unit of some cgroup v1 times: 1/100 second.
const TICK_NANOS: u64 = 10_000_000;

pub(super) fn separate(file: impl Fn(&str, &str) -> PathBuf) -> Usage {
    let text = |controller: &str, name: &str| fs::read_to_string(file(controller, name)).unwrap_or_default();
    let number = |controller: &str, name: &str| text(controller, name).trim().parse::<u64>().ok();
    let stat = text("memory", "memory.stat");
    let memory = number("memory", "memory.usage_in_bytes");
    let with_swap = number("memory", "memory.memsw.usage_in_bytes");
    let (times, cpu) = (text("cpuacct", "cpuacct.stat"), text("cpu", "cpu.stat"));
    Usage {
        cpu_nanos: number("cpuacct", "cpuacct.usage"),
        cpu_user_nanos: value_of(&times, "user").map(|ticks| ticks * TICK_NANOS),
        cpu_system_nanos: value_of(&times, "system").map(|ticks| ticks * TICK_NANOS),
        cpu_periods: value_of(&cpu, "nr_periods"),
        cpu_throttled_periods: value_of(&cpu, "nr_throttled"),
        cpu_throttled_nanos: value_of(&cpu, "throttled_time"),
        cpu_shares: number("cpu", "cpu.shares"),
        // Without a limit the value is -1, which does not parse here.
        cpu_quota_micros: number("cpu", "cpu.cfs_quota_us"),
        cpu_period_micros: number("cpu", "cpu.cfs_period_us"),
        memory_bytes: memory,
        memory_peak_bytes: number("memory", "memory.max_usage_in_bytes"),
        memory_limit_hits: number("memory", "memory.failcnt"),
        cache_bytes: value_of(&stat, "total_cache"),
        mapped_bytes: value_of(&stat, "total_mapped_file"),
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

pub(super) fn unified(dir: &Path) -> Usage {
    let text = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    let number = |name: &str| text(name).trim().parse::<u64>().ok();
    let stat = text("memory.stat");
    let memory = number("memory.current");
    let cpu = text("cpu.stat");
    let nanos = |name: &str| value_of(&cpu, name).map(|micros| micros * 1000);
    let most = text("cpu.max");
    let mut most = most.split_whitespace().map(|word| word.parse::<u64>().ok());
    Usage {
        cpu_nanos: nanos("usage_usec"),
        cpu_user_nanos: nanos("user_usec"),
        cpu_system_nanos: nanos("system_usec"),
        cpu_periods: value_of(&cpu, "nr_periods"),
        cpu_throttled_periods: value_of(&cpu, "nr_throttled"),
        cpu_throttled_nanos: nanos("throttled_usec"),
        cpu_shares: number("cpu.weight").map(shares_of_weight),
        cpu_quota_micros: most.next().flatten(),
        cpu_period_micros: most.next().flatten(),
        memory_bytes: memory,
        memory_peak_bytes: number("memory.peak"),
        memory_limit_hits: value_of(&text("memory.events"), "max"),
        cache_bytes: value_of(&stat, "file"),
        mapped_bytes: value_of(&stat, "file_mapped"),
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

/// Converts a weight from 1 to 10000 to shares from 2 to 262144.
fn shares_of_weight(weight: u64) -> u64 {
    2 + weight.saturating_sub(1) * 262_142 / 9_999
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
    fn cpu_and_memory_usage_is_read_on_v1_and_v2() {
        let dir = tempfile::tempdir().unwrap();
        let write = |files: &[(&str, &str)]| {
            files.iter().for_each(|(name, text)| fs::write(dir.path().join(name), text).unwrap());
        };
        let cpu = |usage: &Usage| {
            let times = [usage.cpu_user_nanos, usage.cpu_system_nanos, usage.cpu_throttled_nanos];
            (times, usage.cpu_periods, usage.cpu_throttled_periods, usage.cpu_quota_micros, usage.cpu_period_micros)
        };
        let expect = ([Some(20_000_000), Some(30_000_000), Some(5_000)], Some(9), Some(4), Some(50_000), Some(100_000));
        write(&[
            ("cpuacct.stat", "user 2\nsystem 3\n"),
            ("cpu.stat", "nr_periods 9\nnr_throttled 4\nthrottled_time 5000\n"),
            ("cpu.cfs_quota_us", "50000\n"),
            ("cpu.cfs_period_us", "100000\n"),
            ("memory.stat", "cache 1\ntotal_cache 4096\ntotal_mapped_file 512\n"),
        ]);
        let old = separate(|_, name| dir.path().join(name));
        assert_eq!(cpu(&old), expect);
        write(&[
            ("cpu.stat", "user_usec 20000\nsystem_usec 30000\nnr_periods 9\nnr_throttled 4\nthrottled_usec 5\n"),
            ("cpu.max", "50000 100000\n"),
            ("cpu.weight", "100\n"),
            ("memory.stat", "file 4096\nfile_mapped 512\n"),
        ]);
        let new = unified(dir.path());
        assert_eq!(cpu(&new), expect);
        assert_eq!((new.cache_bytes, new.mapped_bytes), (old.cache_bytes, old.mapped_bytes));
        assert_eq!(new.cpu_shares, Some(2597));
        write(&[("cpu.max", "max 100000\n"), ("cpu.cfs_quota_us", "-1\n")]);
        assert_eq!(unified(dir.path()).cpu_quota_micros, None);
        assert_eq!(separate(|_, name| dir.path().join(name)).cpu_quota_micros, None);
    }

    #[test]
    fn pressure_stall_information_is_parsed() {
        let text =
            "some avg10=1.50 avg60=0.20 avg300=0.00 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        let read = pressure(text).unwrap();
        assert_eq!((read.some.avg10, read.some.total, read.full.total), (1.5, 1234, 7));
        assert_eq!(pressure(""), None);
    }
}
