//! Conversion of cgroup v2 limits to properties of the systemd unit.

use std::fs;
use std::path::Path;

use super::INFINITY;
use super::bus::Property;

/// The format of a cgroup file, which determines the type of the property.
#[derive(Clone, Copy)]
enum Form {
    /// A number, or `max`.
    Number,
    /// `QUOTA PERIOD` in microseconds.
    CpuMax,
    /// A list such as `0-2,7`.
    Set,
}

/// Cgroup files that the kubelet or the runtime writes, and the systemd properties that correspond to them.
const FILES: &[(&str, &str, Form)] = &[
    ("cpu.weight", "CPUWeight", Form::Number),
    ("cpu.max", "CPUQuotaPerSecUSec", Form::CpuMax),
    ("cpuset.cpus", "AllowedCPUs", Form::Set),
    ("cpuset.mems", "AllowedMemoryNodes", Form::Set),
    ("memory.min", "MemoryMin", Form::Number),
    ("memory.low", "MemoryLow", Form::Number),
    ("memory.high", "MemoryHigh", Form::Number),
    ("memory.max", "MemoryMax", Form::Number),
    ("memory.swap.max", "MemorySwapMax", Form::Number),
    ("pids.max", "TasksMax", Form::Number),
];

/// Resolution of CPU quotas: systemd stores whole percents of a CPU, as CPU time per second.
const QUOTA_STEP_MICROS: u64 = 10_000;
/// Upper bound of CPU and NUMA node IDs, above those that the kernel supports.
const SET_MAX: usize = 1 << 16;

/// Reads the limits of the cgroup in `dir`. Files of controllers that are not enabled are omitted, and so are empty
/// sets, which stand for the parent's set. CPU quotas are rounded up to a value that systemd can store.
pub(super) fn read(dir: &Path) -> Vec<(&'static str, Property)> {
    let limit = |&(file, property, form): &(&'static str, &'static str, Form)| {
        let content = fs::read_to_string(dir.join(file)).ok()?.trim().to_owned();
        Some(match form {
            Form::Number => vec![(property, Property::Number(number(&content)?))],
            Form::CpuMax => {
                let (quota, period) = content.split_once(' ')?;
                let period: u64 = period.parse().ok()?;
                let per_second = match number(quota)? {
                    INFINITY => INFINITY,
                    quota => quota.checked_mul(1_000_000)?.div_ceil(period.max(1)).next_multiple_of(QUOTA_STEP_MICROS),
                };
                vec![(property, Property::Number(per_second)), ("CPUQuotaPeriodUSec", Property::Number(period))]
            }
            Form::Set => vec![(property, Property::Bytes(mask(&content).filter(|mask| !mask.is_empty())?))],
        })
    };
    FILES.iter().filter_map(limit).flatten().collect()
}

fn number(text: &str) -> Option<u64> {
    if text == "max" { Some(INFINITY) } else { text.parse().ok() }
}

/// Converts a list in the kernel's format to a bit mask, least significant byte first.
fn mask(list: &str) -> Option<Vec<u8>> {
    let mut mask = Vec::new();
    for range in list.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last > SET_MAX {
            return None;
        }
        for bit in first..=last {
            if mask.len() <= bit / 8 {
                mask.resize(bit / 8 + 1, 0);
            }
            mask[bit / 8] |= 1 << (bit % 8);
        }
    }
    Some(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_become_the_properties_that_systemd_writes_as_those_limits() {
        let check = |file: &str, content: &str, expect: &[(&str, Property)]| {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(file), format!("{content}\n")).unwrap();
            assert_eq!(read(dir.path()), expect, "{file}: {content}");
        };
        let number = Property::Number;
        check("cpu.weight", "79", &[("CPUWeight", number(79))]);
        check(
            "cpu.max",
            "50000 100000",
            &[("CPUQuotaPerSecUSec", number(500_000)), ("CPUQuotaPeriodUSec", number(100_000))],
        );
        // 12.5 % is rounded up: a container must be able to use what its pod may use.
        check(
            "cpu.max",
            "12500 100000",
            &[("CPUQuotaPerSecUSec", number(130_000)), ("CPUQuotaPeriodUSec", number(100_000))],
        );
        check(
            "cpu.max",
            "max 100000",
            &[("CPUQuotaPerSecUSec", number(u64::MAX)), ("CPUQuotaPeriodUSec", number(100_000))],
        );
        check("memory.max", "67108864", &[("MemoryMax", number(64 << 20))]);
        check("memory.swap.max", "0", &[("MemorySwapMax", number(0))]);
        check("pids.max", "max", &[("TasksMax", number(u64::MAX))]);
        check("cpuset.cpus", "0-1,9", &[("AllowedCPUs", Property::Bytes(vec![0b11, 0b10]))]);
        check("cpuset.cpus", "", &[]);
        check("cpuset.mems", "0", &[("AllowedMemoryNodes", Property::Bytes(vec![1]))]);
        for bad in ["0-4000000000", "x", "1-x"] {
            check("cpuset.cpus", bad, &[]);
        }
        check("memory.max", "many", &[]);
    }
}
