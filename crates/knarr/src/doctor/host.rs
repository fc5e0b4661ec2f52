//! Doctor checks of this host. They do not change it.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{Seek, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use diagnostics::checkup::{Cgroups, Clock, Disk, Hierarchy, Limits, Machine, Port, PortUser, Requirement, Sync};

use super::{Doctor, features};
use crate::capabilities;

/// Number of timed writes. The 99th percentile is the second slowest of them.
const SYNCS: usize = 100;
const SYNC_BYTES: usize = 4096;
/// Time limit of the test. On a slow disk fewer writes are timed.
const SYNC_SECONDS_MAX: u64 = 5;
/// Number of clock readings that must not go backwards.
const CLOCK_LOOKS: usize = 1000;

/// Runs all checks. `holder` is the PID of the cluster that runs in the data directory.
pub(super) fn observe(doctor: &Doctor, holder: Option<u32>) -> Machine {
    let dir = existing(&doctor.data_dir);
    let own_processes = holder.map_or_else(Vec::new, |holder| processes(holder, &doctor.data_dir));
    let port = |number, who, flag, need| Port { number, who, flag, need, holder: port_holder(number, &own_processes) };
    Machine {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        features: features::observe(&dir),
        cgroups: cgroups(),
        ports: vec![
            port(doctor.secure_port, "the API server", "--secure-port", Requirement::Always),
            port(doctor.kubelet_port, "the kubelet", "--kubelet-port", Requirement::Always),
            port(doctor.dns_port, "the DNS server", "--dns-port", Requirement::Always),
            port(doctor.metrics_port, "the metrics server", "--metrics-port", Requirement::Always),
            port(2379, "clients of a replicated store", "", Requirement::Sometimes),
            port(2380, "members of a replicated store", "", Requirement::Sometimes),
        ],
        disk: disk(&dir),
        clock: clock(),
        capabilities: capabilities::effective(),
        limits: limits(),
        forwarding: read("/proc/sys/net/ipv4/ip_forward").map(|text| text.trim() != "0"),
        resolvers: resolvers(&read("/etc/resolv.conf").unwrap_or_default()),
        registries: registries(doctor),
    }
}

/// Returns the directory or its nearest existing ancestor.
fn existing(dir: &Path) -> PathBuf {
    dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn number(path: &str) -> Option<u64> {
    read(path)?.trim().parse().ok()
}

fn cgroups() -> Cgroups {
    let mounts = read("/proc/self/mounts").unwrap_or_default();
    let is_mounted = |kind: &str| mounts.lines().any(|line| line.split(' ').nth(2) == Some(kind));
    let hierarchy = match (is_mounted("cgroup"), is_mounted("cgroup2")) {
        (false, false) => Hierarchy::Absent,
        (true, false) => Hierarchy::V1,
        (true, true) => Hierarchy::Hybrid,
        (false, true) => Hierarchy::V2,
    };
    let mut controllers = BTreeSet::new();
    for file in ["/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/unified/cgroup.controllers"] {
        controllers.extend(read(file).unwrap_or_default().split_whitespace().map(str::to_owned));
    }
    for line in mounts.lines().filter(|line| line.split(' ').nth(2) == Some("cgroup")) {
        let options = line.split(' ').nth(3).unwrap_or_default().split(',');
        // Mount options that are not controllers are dropped by the filter below.
        controllers.extend(
            options.filter(|option| !matches!(*option, "rw" | "ro") && !option.contains('=')).map(str::to_owned),
        );
    }
    controllers.retain(|name| CONTROLLERS.contains(&name.as_str()));
    Cgroups { hierarchy, controllers }
}

/// Reported controllers of cgroup v1 and v2.
const CONTROLLERS: &[&str] = &[
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "io",
    "memory",
    "misc",
    "perf_event",
    "pids",
    "rdma",
];

/// Returns the PIDs of the cluster's process and of components in pods, which have the data directory in their flags.
fn processes(holder: u32, data_dir: &Path) -> Vec<u32> {
    let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let own = data_dir.as_os_str().as_encoded_bytes();
    let is_own = |number: &u32| {
        let line = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        *number == holder || (!own.is_empty() && line.windows(own.len()).any(|part| part == own))
    };
    numbers.filter(|number| *number != std::process::id() || *number == holder).filter(is_own).collect()
}

fn port_holder(port: u16, cluster: &[u32]) -> PortUser {
    match TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)) {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            if cluster.iter().any(|process| listens(*process, port)) { PortUser::Cluster } else { PortUser::Other }
        }
        // A port that only root may bind is free too.
        _ => PortUser::Free,
    }
}

/// Whether a process has a socket that listens on the port.
fn listens(process: u32, port: u16) -> bool {
    const LISTENS: &str = "0A";
    let mut sockets = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        for line in read(&format!("/proc/{process}/net/{table}")).unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, state, _, _, _, _, _, inode, ..] = fields[..] else { continue };
            let at = local.rsplit_once(':').and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
            if state == LISTENS && at == Some(port) {
                sockets.insert(format!("socket:[{inode}]"));
            }
        }
    }
    let Ok(files) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    let mut targets = files.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
    targets.any(|target| target.to_str().is_some_and(|target| sockets.contains(target)))
}

fn disk(dir: &Path) -> Disk {
    let stats = rustix::fs::statvfs(dir).ok();
    Disk {
        dir: dir.display().to_string(),
        free_bytes: stats.as_ref().map_or(0, |stats| stats.f_bavail * stats.f_frsize),
        total_bytes: stats.as_ref().map_or(0, |stats| stats.f_blocks * stats.f_frsize),
        free_files: stats.as_ref().filter(|stats| stats.f_files > 0).map(|stats| stats.f_favail),
        sync: sync_speed(dir).map_err(|error| format!("not measured: {error}")),
    }
}

/// Times appends with fsync, as the store does them.
fn sync_speed(dir: &Path) -> std::io::Result<Sync> {
    let path = dir.join(format!(".doctor-sync-{}", std::process::id()));
    let mut file = OpenOptions::new().create_new(true).write(true).open(&path)?;
    let timed = (|| {
        file.write_all(&[0; SYNC_BYTES])?;
        file.sync_all()?;
        let (mut micros, began_at) = (Vec::with_capacity(SYNCS), Instant::now());
        while micros.len() < SYNCS && began_at.elapsed().as_secs() < SYNC_SECONDS_MAX {
            file.rewind()?;
            let start = Instant::now();
            file.write_all(&[0; SYNC_BYTES])?;
            file.sync_data()?;
            micros.push(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
        micros.sort_unstable();
        std::io::Result::Ok(micros)
    })();
    std::fs::remove_file(&path)?;
    let micros = timed?;
    let at = |part: usize| micros.get((micros.len() * part / 100).min(micros.len().saturating_sub(1))).copied();
    Ok(Sync { p50_micros: at(50).unwrap_or_default(), p99_micros: at(99).unwrap_or_default() })
}

fn clock() -> Clock {
    let state = sys::clock_state().ok();
    let mut last = SystemTime::now();
    let mut went_back = false;
    for _ in 0..CLOCK_LOOKS {
        let now = SystemTime::now();
        went_back |= now < last;
        last = now;
    }
    let seconds = last.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Clock {
        synchronised: state.map(|state| state.is_synchronised),
        error_micros: state.map_or(0, |state| state.error_micros),
        unix_seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
        went_back,
    }
}

fn limits() -> Limits {
    // The hard limit counts: a cluster raises its soft limit to it.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    Limits {
        files,
        inotify_instances: number("/proc/sys/fs/inotify/max_user_instances"),
        inotify_watches: number("/proc/sys/fs/inotify/max_user_watches"),
        processes: number("/proc/sys/kernel/pid_max"),
    }
}

fn registries(doctor: &Doctor) -> Result<&'static str, String> {
    // Only root can read a file with passwords.
    if !rustix::process::geteuid().is_root() {
        return Ok("unknown; run this as root to check them");
    }
    doctor.registries.check().map(|()| "valid").map_err(|error| format!("{error:#}"))
}

fn resolvers(text: &str) -> Vec<String> {
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers.filter_map(|rest| rest.split_whitespace().next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_nameservers_are_parsed_like_libc() {
        assert_eq!(
            resolvers("# nameserver 1\nnameserver 192.0.2.1 x\nsearch a\n nameserver\t::1\n"),
            ["192.0.2.1", "::1"]
        );
    }

    #[test]
    fn port_used_by_the_cluster_is_reported_as_its_own() {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(port_holder(port, &[std::process::id()]), PortUser::Cluster);
        assert_eq!(port_holder(port, &[]), PortUser::Other);
        drop(listener);
        assert_eq!(port_holder(port, &[]), PortUser::Free);
    }

    #[test]
    fn disk_check_leaves_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let seen = disk(dir.path());
        assert!(seen.sync.is_ok_and(|sync| sync.p50_micros <= sync.p99_micros));
        features::observe(dir.path());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(existing(&dir.path().join("a/b")), dir.path());
    }
}
