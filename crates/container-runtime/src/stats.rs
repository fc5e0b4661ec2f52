//! Resource statistics of sandboxes and containers.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use cgroups::{Cgroup, Pressure, Stall, Usage};
use node_api::cri::v1;

use crate::ids::now;
use crate::persisted::Phase;
use crate::state::{Container, Runtime, Sample, Sandbox};

/// Maximum age of a disk usage measurement, which walks a directory tree.
const DISK_AGE_MAX: Duration = Duration::from_secs(10);
/// Minimum interval of a CPU rate; shorter ones are too inaccurate.
const RATE_SPAN_MIN: Duration = Duration::from_millis(100);

impl Container {
    /// Returns the statistics of a running container.
    pub(crate) fn stats(&self) -> Option<v1::ContainerStats> {
        let record = self.record();
        if !matches!(record.phase, Phase::Running { .. }) {
            return None;
        }
        let usage = Cgroup::at(&record.cgroup).usage();
        let (rate, bytes, inodes) = self.measure(&usage);
        let attributes = v1::ContainerAttributes {
            id: record.id,
            metadata: record.config.metadata,
            labels: record.config.labels,
            annotations: record.config.annotations,
        };
        let at = now();
        let writable_layer = v1::FilesystemUsage {
            timestamp: at,
            fs_id: Some(v1::FilesystemIdentifier { mountpoint: self.dir.display().to_string() }),
            used_bytes: some(bytes),
            inodes_used: some(inodes),
        };
        Some(v1::ContainerStats {
            attributes: Some(attributes),
            cpu: Some(cpu(at, &usage, rate)),
            memory: Some(memory(at, &usage)),
            writable_layer: Some(writable_layer),
            swap: Some(v1::SwapUsage {
                timestamp: at,
                swap_available_bytes: None,
                swap_usage_bytes: value(usage.swap_bytes),
            }),
            io: Some(v1::IoUsage { timestamp: at, psi: usage.io_pressure.map(psi) }),
        })
    }

    /// Returns the CPU rate since the last measurement, and bytes and inodes on disk, which are cached.
    fn measure(&self, usage: &Usage) -> (Option<u64>, u64, u64) {
        let mut sample = self.sample.lock().expect("no holder of a sample panics");
        let at = Instant::now();
        let cpu_nanos = usage.cpu_nanos.unwrap_or(0);
        let rate = match &*sample {
            Some(last) if at - last.at < RATE_SPAN_MIN => last.rate,
            Some(last) => {
                let span = u64::try_from((at - last.at).as_nanos()).unwrap_or(u64::MAX);
                let used = u128::from(cpu_nanos.saturating_sub(last.cpu_nanos));
                u64::try_from(used * 1_000_000_000 / u128::from(span.max(1))).ok()
            }
            None => None,
        };
        let known = sample.as_ref().and_then(|last| last.disk).filter(|(when, ..)| at - *when < DISK_AGE_MAX);
        let disk = known.unwrap_or_else(|| {
            let (bytes, inodes) = disk_usage(&self.dir.join("upper"));
            (at, bytes, inodes)
        });
        *sample = Some(Sample { at, cpu_nanos, rate, disk: Some(disk) });
        (rate, disk.1, disk.2)
    }
}

impl Runtime {
    /// Returns the statistics of a sandbox and its containers.
    pub(crate) fn sandbox_stats(&self, sandbox: &Sandbox) -> v1::PodSandboxStats {
        let record = sandbox.record();
        let containers: Vec<v1::ContainerStats> =
            self.containers_of(&record.id).iter().filter_map(|container| container.stats()).collect();
        // The pod's cgroup contains the sandbox's process and all containers.
        let parent = record.cgroup.rsplit_once('/').map_or("", |(parent, _)| parent);
        let uid = record.config.metadata.clone().unwrap_or_default().uid;
        // In slice names, dashes separate parents, so the UID has underscores.
        let is_pods_own = parent.contains(&uid) || parent.contains(&uid.replace('-', "_"));
        let group = if is_pods_own { parent } else { &record.cgroup };
        let usage = Cgroup::at(group).usage();
        let at = now();
        let processes = v1::ProcessUsage { timestamp: at, process_count: value(usage.pids) };
        let linux = v1::LinuxPodSandboxStats {
            cpu: Some(cpu(at, &usage, None)),
            memory: Some(memory(at, &usage)),
            network: network(at, record.pause),
            process: Some(processes),
            containers,
            io: Some(v1::IoUsage { timestamp: at, psi: usage.io_pressure.map(psi) }),
        };
        let attributes = v1::PodSandboxAttributes {
            id: record.id,
            metadata: record.config.metadata,
            labels: record.config.labels,
            annotations: record.config.annotations,
        };
        v1::PodSandboxStats { attributes: Some(attributes), linux: Some(linux), windows: None }
    }
}

fn cpu(at: i64, usage: &Usage, rate: Option<u64>) -> v1::CpuUsage {
    v1::CpuUsage {
        timestamp: at,
        usage_core_nano_seconds: value(usage.cpu_nanos),
        usage_nano_cores: value(rate),
        psi: usage.cpu_pressure.map(psi),
    }
}

fn memory(at: i64, usage: &Usage) -> v1::MemoryUsage {
    let available =
        usage.memory_limit_bytes.zip(usage.working_set_bytes).map(|(limit, used)| limit.saturating_sub(used));
    v1::MemoryUsage {
        timestamp: at,
        working_set_bytes: value(usage.working_set_bytes),
        available_bytes: value(available),
        usage_bytes: value(usage.memory_bytes),
        rss_bytes: value(usage.rss_bytes),
        page_faults: value(usage.page_faults),
        major_page_faults: value(usage.major_page_faults),
        psi: usage.memory_pressure.map(psi),
    }
}

fn psi(pressure: Pressure) -> v1::PsiStats {
    let data =
        |stall: Stall| v1::PsiData { total: stall.total, avg10: stall.avg10, avg60: stall.avg60, avg300: stall.avg300 };
    v1::PsiStats { full: Some(data(pressure.full)), some: Some(data(pressure.some)) }
}

/// Returns the network interface statistics of a process from `/proc/<pid>/net/dev`.
fn network(at: i64, pid: i32) -> Option<v1::NetworkUsage> {
    let table = fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?;
    let mut all: Vec<v1::NetworkInterfaceUsage> = table.lines().filter_map(interface).collect();
    let main = all.iter().position(|one| one.name == "eth0").map(|at| all.remove(at));
    Some(v1::NetworkUsage { timestamp: at, default_interface: main, interfaces: all })
}

fn interface(line: &str) -> Option<v1::NetworkInterfaceUsage> {
    let (name, counters) = line.split_once(':')?;
    let counters: Vec<u64> = counters.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    let name = name.trim();
    (name != "lo").then_some(())?;
    Some(v1::NetworkInterfaceUsage {
        name: name.to_owned(),
        rx_bytes: value(counters.first().copied()),
        rx_errors: value(counters.get(2).copied()),
        tx_bytes: value(counters.get(8).copied()),
        tx_errors: value(counters.get(10).copied()),
    })
}

/// Returns bytes and inodes under a directory that a container writes to; files that vanish meanwhile do not count.
pub(crate) fn disk_usage(root: &Path) -> (u64, u64) {
    let (mut bytes, mut inodes) = (0, 0);
    let walked = sys::walk_container_tree(root, |found| {
        if found.depth > 0 {
            inodes += 1;
            bytes += u64::try_from(found.stat.st_blocks).unwrap_or(0) * 512;
        }
        Ok(())
    });
    if let Err(error) = walked {
        tracing::debug!(root = %root.display(), %error, "failed to measure a directory");
    }
    (bytes, inodes)
}

fn value(value: Option<u64>) -> Option<v1::UInt64Value> {
    value.map(|value| v1::UInt64Value { value })
}

fn some(number: u64) -> Option<v1::UInt64Value> {
    value(Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_from_proc_net_dev() {
        let line = "  eth0:     100       2    3    0    0     0          0         0      200       4    5    0    0     0       0          0";
        let read = interface(line).unwrap();
        let number = |value: Option<v1::UInt64Value>| value.unwrap().value;
        assert_eq!((read.name.as_str(), number(read.rx_bytes), number(read.rx_errors)), ("eth0", 100, 3));
        assert_eq!((number(read.tx_bytes), number(read.tx_errors)), (200, 5));
        assert!(interface("    lo: 1 2 3").is_none() && interface("Inter-|   Receive").is_none());
    }
}
