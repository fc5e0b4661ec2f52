//! What the machine uses now: processor, memory, disk, processes.

use std::fs;
use std::path::Path;

use machinery::time::Time;

/// What the machine uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeUsage {
    /// Time that its processors worked.
    pub cpu_nanos: u64,
    /// Memory in all.
    pub memory_total: u64,
    /// Memory that nobody uses.
    pub memory_free: u64,
    /// Memory that can be had without swapping.
    pub memory_available: u64,
    /// Swap in all.
    pub swap_total: u64,
    /// Swap that nobody uses.
    pub swap_free: u64,
    /// Processes and threads.
    pub pids: u64,
    /// How many there can be.
    pub pids_max: u64,
    /// When it started.
    pub boot: Time,
}

/// The state of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Its size.
    pub capacity: u64,
    /// Free bytes.
    pub free: u64,
    /// Free bytes for those who are not root.
    pub available: u64,
    /// How many files it can hold.
    pub inodes: u64,
    /// How many more.
    pub inodes_free: u64,
}

impl NodeUsage {
    /// Reads it; what cannot be read is zero.
    pub fn read() -> Self {
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
    /// The disk that a path is on; nothing if it cannot be asked.
    pub fn of(path: &Path) -> Self {
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

/// What something takes of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Room.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

impl std::ops::Add for Taken {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, inodes: self.inodes + other.inodes }
    }
}

impl std::iter::Sum for Taken {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| sum + one)
    }
}

/// What everything at and below a path takes on its disk. What is mounted below it does not count, nor does what links lead to.
pub fn disk_taken(path: &Path) -> Taken {
    let mut taken = Taken::default();
    // A container may be writing there, so what cannot be looked at any more counts for nothing.
    let _ = sys::walk_container_tree(path, |found| {
        taken = taken + Taken { bytes: u64::try_from(found.stat.st_blocks).unwrap_or(0) * 512, inodes: 1 };
        Ok(())
    });
    taken
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find(|line| line.starts_with(name))?.split_whitespace().nth(1)?.parse().ok()
}

/// User, nice, system, irq, softirq and steal, in nanoseconds; the kernel counts hundredths of a second.
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
    fn what_is_below_a_path_is_counted_with_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        let empty = disk_taken(dir.path());
        fs::write(dir.path().join("d/f"), [7; 10_000]).unwrap();
        let full = disk_taken(dir.path());
        assert_eq!((empty.inodes, full.inodes), (2, 3));
        assert!(full.bytes >= empty.bytes + 10_000, "{empty:?} {full:?}");
        assert_eq!(disk_taken(&dir.path().join("absent")), Taken::default());
    }

    #[test]
    fn a_machine_is_read_as_the_kernel_tells_it() {
        assert_eq!(busy("cpu  1 2 3 100 200 4 5 6 0 0\ncpu0 …"), 21 * 10_000_000);
        let usage = NodeUsage::read();
        assert!(
            usage.memory_total > usage.memory_available && usage.pids > 0 && usage.boot.unix_seconds() > 0,
            "{usage:?}"
        );
        assert!(Disk::of(Path::new("/")).capacity > 0);
    }
}
