//! Resource usage of the host: CPU, memory, disk, PIDs.

use std::fs;
use std::path::Path;

use apimachinery::time::Time;

/// Resource usage of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeUsage {
    /// Busy time of all CPUs.
    pub cpu_nanos: u64,
    pub memory_total: u64,
    pub memory_free: u64,
    /// Memory available without swapping.
    pub memory_available: u64,
    pub swap_total: u64,
    pub swap_free: u64,
    /// Number of processes and threads.
    pub pids: u64,
    /// Maximum number of PIDs.
    pub pids_max: u64,
    /// Boot time.
    pub boot: Time,
}

/// Capacity and free space of a filesystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    pub capacity: u64,
    pub free: u64,
    /// Bytes available to unprivileged users.
    pub available: u64,
    pub inodes: u64,
    pub inodes_free: u64,
}

impl NodeUsage {
    /// Reads the usage of the host; unreadable values are zero.
    pub(crate) fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let memory = text("/proc/meminfo");
        let kib = |name: &str| field(&memory, name).unwrap_or(0) * 1024;
        let stat = text("/proc/stat");
        let threads = text("/proc/loadavg");
        let threads = threads.split_whitespace().nth(3).and_then(|pair| pair.split_once('/')?.1.parse().ok());
        Self {
            cpu_nanos: busy(&stat),
            memory_total: kib("MemTotal:"),
            memory_free: kib("MemFree:"),
            memory_available: kib("MemAvailable:"),
            swap_total: kib("SwapTotal:"),
            swap_free: kib("SwapFree:"),
            pids: threads.unwrap_or(0),
            pids_max: text("/proc/sys/kernel/pid_max").trim().parse().unwrap_or(0),
            boot: Time::from_unix(field(&stat, "btime").and_then(|at| i64::try_from(at).ok()).unwrap_or(0), 0),
        }
    }
}

impl Disk {
    /// Reads the filesystem of a path; zeros if that fails.
    pub(crate) fn of(path: &Path) -> Self {
        let Ok(found) = rustix::fs::statvfs(path) else { return Self::default() };
        Self {
            capacity: found.f_blocks * found.f_frsize,
            free: found.f_bfree * found.f_frsize,
            available: found.f_bavail * found.f_frsize,
            inodes: found.f_files,
            inodes_free: found.f_ffree,
        }
    }
}

/// Disk usage of a file tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    pub bytes: u64,
    /// Number of files and directories.
    pub inodes: u64,
}

impl std::ops::Add for DiskUsage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, inodes: self.inodes + other.inodes }
    }
}

impl std::iter::Sum for DiskUsage {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| sum + one)
    }
}

/// Measures everything at and below a path. Excludes other mounts below it and targets of symlinks.
pub(crate) fn disk_taken(path: &Path) -> DiskUsage {
    let mut taken = DiskUsage::default();
    // A container may change the tree concurrently; files that vanish count as zero.
    let _ = sys::walk_container_tree(path, |found| {
        taken = taken + DiskUsage { bytes: u64::try_from(found.stat.st_blocks).unwrap_or(0) * 512, inodes: 1 };
        Ok(())
    });
    taken
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find(|line| line.starts_with(name))?.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the sum of user, nice, system, irq, softirq and steal time in nanoseconds; the kernel counts in 10 ms ticks.
fn busy(stat: &str) -> u64 {
    let line = stat.lines().next().unwrap_or_default();
    let numbers: Vec<u64> = line.split_whitespace().skip(1).filter_map(|number| number.parse().ok()).collect();
    let worked: u64 = [0, 1, 2, 5, 6, 7].into_iter().filter_map(|at| numbers.get(at)).sum();
    worked * 10_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_usage_includes_all_files_below_a_path() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        let empty = disk_taken(dir.path());
        fs::write(dir.path().join("d/f"), [7; 10_000]).unwrap();
        let full = disk_taken(dir.path());
        assert_eq!((empty.inodes, full.inodes), (2, 3));
        assert!(full.bytes >= empty.bytes + 10_000, "{empty:?} {full:?}");
        assert_eq!(disk_taken(&dir.path().join("absent")), DiskUsage::default());
    }

    #[test]
    fn host_usage_is_read_from_procfs() {
        assert_eq!(busy("cpu  1 2 3 100 200 4 5 6 0 0\ncpu0 …"), 21 * 10_000_000);
        let usage = NodeUsage::read();
        assert!(
            usage.memory_total > usage.memory_available && usage.pids > 0 && usage.boot.unix_seconds() > 0,
            "{usage:?}"
        );
        assert!(Disk::of(Path::new("/")).capacity > 0);
    }
}
