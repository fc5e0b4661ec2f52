//! Process metrics (`process_*`) from /proc.

use super::family::{FormattedLabels, head, sample};

/// USER_HZ, the unit of CPU times in /proc: 100 on every relevant Linux.
const TICKS_PER_SECOND: f64 = 100.0;
const PAGE_BYTES: u64 = 4096;

/// Appends the `process_*` series; those that cannot be read are omitted.
pub(super) fn print(out: &mut String) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The executable name in parentheses may contain any character.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok());
    let seconds = |ticks: u64| ticks as f64 / TICKS_PER_SECOND;
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        let help = "User and system CPU time of the process in seconds.";
        series("process_cpu_seconds_total", help, "counter", seconds(user + system), out);
    }
    if let Some(bytes) = field(23) {
        series("process_virtual_memory_bytes", "Virtual memory size in bytes.", "gauge", bytes, out);
    }
    if let Some(pages) = field(24) {
        series("process_resident_memory_bytes", "Resident memory size in bytes.", "gauge", pages * PAGE_BYTES, out);
    }
    if let (Some(ticks), Some(boot)) = (field(22), boot_seconds()) {
        let help = "Start time of the process in seconds since the Unix epoch.";
        series("process_start_time_seconds", help, "gauge", boot + seconds(ticks), out);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        series("process_open_fds", "Number of open file descriptors.", "gauge", open.count(), out);
    }
    if let Some(most) = descriptors_max() {
        series("process_max_fds", "Maximum number of open file descriptors.", "gauge", most, out);
    }
}

fn series(name: &str, help: &str, kind: &str, value: impl std::fmt::Display, out: &mut String) {
    head(name, help, kind, out);
    sample(name, &FormattedLabels::of([]), value, out);
}

fn boot_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

fn descriptors_max() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn process_metrics_are_read_from_proc() {
        let mut out = String::new();
        super::print(&mut out);
        for name in ["cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds"] {
            assert!(out.lines().any(|line| line.starts_with(&format!("process_{name} "))), "{name} in {out}");
        }
    }
}
