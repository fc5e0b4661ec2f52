//! Disk usage of a cluster, for messages.

use std::path::Path;

use diagnostics::checkup::{DiskPressure, disk_pressure};

/// The file system of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    free_bytes: u64,
    total_bytes: u64,
}

impl Disk {
    /// Returns `None` if statvfs fails.
    pub(crate) fn of(dir: &Path) -> Option<Self> {
        let disk = rustix::fs::statvfs(dir).ok()?;
        Some(Self { free_bytes: disk.f_bavail * disk.f_frsize, total_bytes: disk.f_blocks * disk.f_frsize })
    }

    /// Returns the free space in bytes and percent.
    pub(crate) fn describe(self) -> String {
        let percent = self.free_bytes.saturating_mul(100) / self.total_bytes.max(1);
        format!("{} GiB free, {percent} % of the disk", self.free_bytes >> 30)
    }

    /// Returns advice if the disk is nearly full.
    pub(crate) fn warning(self) -> Option<&'static str> {
        disk_pressure(self.free_bytes, self.total_bytes).map(DiskPressure::advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_full_disk_has_a_warning() {
        let check = |free: u64, expect: Option<&str>| {
            let disk = Disk { free_bytes: free << 30, total_bytes: 100 << 30 };
            let warning = disk.warning();
            assert_eq!(warning.is_some(), expect.is_some(), "{free} %");
            assert!(warning.unwrap_or_default().contains(expect.unwrap_or_default()), "{warning:?}");
        };
        check(14, None);
        check(10, None);
        check(9, Some("below 5 %"));
        check(4, Some("disk-pressure"));
        let disk = Disk { free_bytes: 14 << 30, total_bytes: 100 << 30 };
        assert_eq!(disk.describe(), "14 GiB free, 14 % of the disk");
    }
}
