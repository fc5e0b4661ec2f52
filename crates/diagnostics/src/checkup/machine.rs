//! Checks of a host.

use super::{Cgroups, CheckResult, Feature, FeatureStatus, Hierarchy, Machine, Port, PortUser, Row};

/// ID-mapped mounts require 5.12; before 5.4, nftables lacks features that services need.
const KERNEL_MIN: (u32, u32) = (5, 4);
const KERNEL_GOOD: (u32, u32) = (5, 12);
/// Free space below the minimum prevents a start; below the recommended value, images soon fill the disk.
const FREE_BYTES_MIN: u64 = 256 << 20;
const FREE_BYTES_GOOD: u64 = 4 << 30;
/// Nodes of `knarr up` evict pods below the minimum percentage of free space; the warning comes earlier.
const FREE_PERCENT_MIN: u64 = 5;
const FREE_PERCENT_GOOD: u64 = 10;
const FREE_FILES_MIN: u64 = 10_000;
/// Above these latencies, a leader loses its followers under load.
const SYNC_P99_SLOW_MICROS: u64 = 50_000;
const SYNC_P99_BAD_MICROS: u64 = 1_000_000;
/// Tokens and leases compare the clocks of several hosts.
const CLOCK_ERROR_MAX_MICROS: u64 = 1_000_000;
/// 2024-01-01: certificates are not valid before, so an earlier clock was never set.
const UNIX_SECONDS_MIN: i64 = 1_704_067_200;
const FILES_GOOD: u64 = 4096;
const INOTIFY_INSTANCES_GOOD: u64 = 128;
const INOTIFY_WATCHES_GOOD: u64 = 8192;
const PROCESSES_GOOD: u64 = 4096;

/// Capabilities needed to run pods: name, bit, verdict if missing.
const CAPABILITIES: &[(&str, u8, CheckResult)] = &[
    ("CHOWN", 0, CheckResult::Fail),
    ("DAC_OVERRIDE", 1, CheckResult::Fail),
    ("FOWNER", 3, CheckResult::Fail),
    ("KILL", 5, CheckResult::Fail),
    ("SETGID", 6, CheckResult::Fail),
    ("SETUID", 7, CheckResult::Fail),
    ("SETPCAP", 8, CheckResult::Fail),
    ("NET_ADMIN", 12, CheckResult::Fail),
    ("NET_RAW", 13, CheckResult::Warn),
    ("SYS_CHROOT", 18, CheckResult::Fail),
    ("SYS_PTRACE", 19, CheckResult::Warn),
    ("SYS_ADMIN", 21, CheckResult::Fail),
    ("SYS_RESOURCE", 24, CheckResult::Warn),
    ("MKNOD", 27, CheckResult::Fail),
];

/// cgroup controllers that the kubelet needs to enforce limits.
const CONTROLLERS: &[(&str, CheckResult)] = &[
    ("cpu", CheckResult::Fail),
    ("memory", CheckResult::Fail),
    ("pids", CheckResult::Warn),
    ("cpuset", CheckResult::Warn),
    ("hugetlb", CheckResult::Warn),
];

pub(super) fn evaluate(machine: &Machine) -> Vec<Row> {
    let mut rows = vec![kernel(&machine.kernel)];
    rows.extend(machine.features.iter().map(feature));
    rows.extend([cgroups(&machine.cgroups), capabilities(machine.capabilities)]);
    rows.extend(machine.ports.iter().map(port));
    rows.extend([disk(machine), sync(machine), clock(machine), files(machine), inotify(machine), processes(machine)]);
    rows.extend([forwarding(machine), resolvers(machine), registries(machine)]);
    rows
}

fn kernel(release: &str) -> Row {
    let row = Row::new("kernel", "release", release);
    let mut numbers = release.split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) >= KERNEL_GOOD => row,
        (Some(major), Some(minor)) if (major, minor) >= KERNEL_MIN => {
            row.but(CheckResult::Warn, "pods with user namespaces (hostUsers: false) need Linux 5.12 or newer")
        }
        (Some(_), Some(_)) => row.but(CheckResult::Fail, "Knarr needs Linux 5.4 or newer"),
        _ => row.but(CheckResult::Warn, "the release cannot be parsed; Knarr needs Linux 5.4 or newer"),
    }
}

fn feature(feature: &Feature) -> Row {
    let looks_at = feature.purpose;
    match &feature.tried {
        FeatureStatus::Works => Row::new(feature.name, looks_at, "works"),
        FeatureStatus::Fails(cause) => Row::new(feature.name, looks_at, cause.as_str()).but(
            feature.need.without(),
            format!("use a kernel with {0}, or load its module: `modprobe {0}`", feature.name),
        ),
        FeatureStatus::Unknown(cause) => {
            Row::new(feature.name, looks_at, cause.as_str()).but(CheckResult::Warn, "run this as root to test it")
        }
    }
}

fn cgroups(cgroups: &Cgroups) -> Row {
    let version = match cgroups.hierarchy {
        Hierarchy::Absent => "none",
        Hierarchy::V1 => "version 1",
        Hierarchy::Hybrid => "versions 1 and 2",
        Hierarchy::V2 => "version 2",
    };
    let missing: Vec<_> = CONTROLLERS.iter().filter(|(name, _)| !cgroups.controllers.contains(*name)).collect();
    let known: Vec<&str> = cgroups.controllers.iter().map(String::as_str).collect();
    let row = Row::new("cgroups", "hierarchies and controllers", format!("{version}: {}", known.join(" ")));
    if cgroups.hierarchy == Hierarchy::Absent {
        return row.but(CheckResult::Fail, "mount cgroups: `mount -t cgroup2 none /sys/fs/cgroup`");
    }
    let Some(worst) = missing.iter().map(|(_, verdict)| *verdict).max() else { return row };
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    row.but(
        worst,
        format!(
            "limits of pods need the cgroup controllers {}: enable them on the kernel's command line and in every parent cgroup; a kubelet without controllers that it needs starts only with --allow-missing-cgroup-controllers",
            names.join(", ")
        ),
    )
}

/// Returns the missing capabilities without which pods cannot run.
pub fn capabilities_lacking(effective: u64) -> Vec<String> {
    let bad = missing(effective).filter(|(_, _, verdict)| *verdict == CheckResult::Fail);
    bad.map(|(name, _, _)| format!("CAP_{name}")).collect()
}

fn missing(effective: u64) -> impl Iterator<Item = &'static (&'static str, u8, CheckResult)> {
    CAPABILITIES.iter().filter(move |(_, bit, _)| (effective >> bit) & 1 == 0)
}

fn capabilities(effective: u64) -> Row {
    let missing: Vec<_> = missing(effective).collect();
    let row = Row::new(
        "capabilities",
        "capabilities of this process",
        format!("{} of {}", CAPABILITIES.len() - missing.len(), CAPABILITIES.len()),
    );
    let Some(worst) = missing.iter().map(|(_, _, verdict)| *verdict).max() else { return row };
    let names: Vec<String> = missing.iter().map(|(name, _, _)| format!("CAP_{name}")).collect();
    let advice = match worst {
        CheckResult::Fail => format!("run this as root and, in a container, with {}", names.join(", ")),
        _ => format!("without {} some limits of pods are clamped", names.join(", ")),
    };
    row.but(worst, advice)
}

fn port(port: &Port) -> Row {
    let name = format!("port {}", port.number);
    match port.holder {
        PortUser::Free => Row::new(name, port.who, "free"),
        PortUser::Cluster => Row::new(name, port.who, "held by this cluster"),
        PortUser::Other => {
            let other =
                if port.flag.is_empty() { String::new() } else { format!(", or choose another with {}", port.flag) };
            Row::new(name, port.who, "taken by another program")
                .but(port.need.without(), format!("stop that program (`ss -lntp` names it){other}"))
        }
    }
}

/// Proximity of a disk to the eviction threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskPressure {
    /// Close to the threshold.
    Near,
    /// Beyond the threshold.
    Reached,
}

impl DiskPressure {
    /// Returns the explanation and the recommended action.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Near => "below 5 % free space, nodes are tainted with disk-pressure and evict pods: free disk space",
            Self::Reached => {
                "nodes are tainted with disk-pressure: no pods are scheduled and some are evicted; free disk space"
            }
        }
    }
}

/// Returns whether nodes evict pods because of disk usage, or will soon.
pub fn disk_pressure(free_bytes: u64, total_bytes: u64) -> Option<DiskPressure> {
    let is_below = |percent: u64| u128::from(free_bytes) * 100 < u128::from(total_bytes) * u128::from(percent);
    match (is_below(FREE_PERCENT_MIN), is_below(FREE_PERCENT_GOOD)) {
        (true, _) => Some(DiskPressure::Reached),
        (false, true) => Some(DiskPressure::Near),
        (false, false) => None,
    }
}

fn disk(machine: &Machine) -> Row {
    let disk = &machine.disk;
    let percent = disk.free_bytes.saturating_mul(100) / disk.total_bytes.max(1);
    let row = Row::new("disk", &disk.dir, format!("{} MiB free, {percent} %", disk.free_bytes >> 20));
    if disk.free_bytes < FREE_BYTES_MIN {
        return row.but(CheckResult::Fail, "free disk space, or choose another directory with --data-dir");
    }
    if let Some(pressure) = disk_pressure(disk.free_bytes, disk.total_bytes) {
        return row.but(CheckResult::Warn, pressure.advice());
    }
    if disk.free_files.is_some_and(|files| files < FREE_FILES_MIN) {
        return row.but(CheckResult::Warn, "almost no inodes are free, and images have many files");
    }
    if disk.free_bytes < FREE_BYTES_GOOD {
        return row.but(CheckResult::Warn, "images and pod logs will fill it: free disk space");
    }
    row
}

fn sync(machine: &Machine) -> Row {
    let looks_at = "4 KiB written and synced";
    match &machine.disk.sync {
        Err(error) => Row::new("sync speed", looks_at, error.as_str())
            .but(CheckResult::Warn, "run this as root, or with a writable --data-dir"),
        Ok(sync) => {
            let millis = |micros: u64| format!("{}.{:02}", micros / 1000, micros % 1000 / 10);
            let found = format!("p50 {} ms, p99 {} ms", millis(sync.p50_micros), millis(sync.p99_micros));
            let row = Row::new("sync speed", looks_at, found);
            match sync.p99_micros {
                SYNC_P99_BAD_MICROS.. => {
                    row.but(CheckResult::Warn, "every write to the API waits for this: use another disk")
                }
                SYNC_P99_SLOW_MICROS.. => row.but(CheckResult::Warn, "fine for one server; several need a faster disk"),
                _ => row,
            }
        }
    }
}

fn clock(machine: &Machine) -> Row {
    let clock = &machine.clock;
    let status = match clock.synchronised {
        Some(true) => format!("synchronised, maximum error {} ms", clock.error_micros / 1000),
        Some(false) => "not synchronised".to_owned(),
        None => "unknown".to_owned(),
    };
    let row = Row::new("clock", "adjtimex and monotonicity", status);
    if clock.unix_seconds < UNIX_SECONDS_MIN {
        return row.but(CheckResult::Fail, "the clock was never set: certificates would not be valid; set it");
    }
    if clock.went_back {
        return row.but(CheckResult::Warn, "the time went backwards during the check: something steps the clock");
    }
    match clock.synchronised {
        Some(true) if clock.error_micros <= CLOCK_ERROR_MAX_MICROS => row,
        Some(true) => {
            row.but(CheckResult::Warn, "tokens and leases need clocks that are synchronised: check the time service")
        }
        _ => row.but(CheckResult::Warn, "fine for one node; several need a time service such as systemd-timesyncd"),
    }
}

fn files(machine: &Machine) -> Row {
    let advice = "raise it: `ulimit -n 1048576`, or LimitNOFILE= of the systemd unit";
    limit("open files", "RLIMIT_NOFILE", machine.limits.files, FILES_GOOD, advice)
}

fn inotify(machine: &Machine) -> Row {
    let limits = &machine.limits;
    let looks_at = "fs.inotify";
    let number = |number: Option<u64>| number.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
    let found = format!("{} instances, {} watches", number(limits.inotify_instances), number(limits.inotify_watches));
    let row = Row::new("inotify", looks_at, found);
    let low = limits.inotify_instances.is_some_and(|number| number < INOTIFY_INSTANCES_GOOD)
        || limits.inotify_watches.is_some_and(|number| number < INOTIFY_WATCHES_GOOD);
    if !low {
        return row;
    }
    row.but(
        CheckResult::Warn,
        format!(
            "`sysctl fs.inotify.max_user_instances={INOTIFY_INSTANCES_GOOD} fs.inotify.max_user_watches={INOTIFY_WATCHES_GOOD}`"
        ),
    )
}

fn processes(machine: &Machine) -> Row {
    let advice = "raise it: `sysctl kernel.pid_max=4194304`";
    limit("processes", "kernel.pid_max", machine.limits.processes, PROCESSES_GOOD, advice)
}

fn limit(name: &str, looks_at: &str, have: Option<u64>, good: u64, advice: &str) -> Row {
    match have {
        None => Row::new(name, looks_at, "no limit"),
        Some(have) if have >= good => Row::new(name, looks_at, have.to_string()),
        Some(have) => Row::new(name, looks_at, have.to_string()).but(CheckResult::Warn, advice),
    }
}

fn forwarding(machine: &Machine) -> Row {
    let looks_at = "net.ipv4.ip_forward";
    match machine.forwarding {
        Some(true) => Row::new("forwarding", looks_at, "on"),
        // The pod network enables forwarding itself.
        Some(false) => Row::new("forwarding", looks_at, "off; `knarr up` enables it"),
        None => Row::new("forwarding", looks_at, "unknown")
            .but(CheckResult::Warn, "without it, pods cannot reach anything outside the node"),
    }
}

fn registries(machine: &Machine) -> Row {
    let looks_at = "registries.yaml and directory of hosts";
    match &machine.registries {
        Ok(state) => Row::new("registries", looks_at, *state),
        Err(problem) => Row::new("registries", looks_at, problem.as_str())
            .but(CheckResult::Fail, "correct the file: a running node keeps the previous settings, but a start fails"),
    }
}

fn resolvers(machine: &Machine) -> Row {
    let looks_at = "/etc/resolv.conf";
    if machine.resolvers.is_empty() {
        return Row::new("resolver", looks_at, "no name server")
            .but(CheckResult::Warn, "pods cannot resolve names outside the cluster; add `nameserver ADDRESS` there");
    }
    Row::new("resolver", looks_at, machine.resolvers.join(" "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{Clock, Cluster, Disk, Limits, Requirement, Sync, evaluate as all, prevents};
    use super::*;

    fn good() -> Machine {
        let feature = |name, need| Feature { name, purpose: "tests", need, tried: FeatureStatus::Works };
        let port = |number, need| Port { number, who: "somebody", flag: "--port", need, holder: PortUser::Free };
        Machine {
            kernel: "6.1.0-13-amd64".into(),
            features: vec![feature("overlay", Requirement::Always), feature("vxlan", Requirement::Sometimes)],
            cgroups: Cgroups {
                hierarchy: Hierarchy::V2,
                controllers: CONTROLLERS.iter().map(|(name, _)| (*name).to_owned()).collect(),
            },
            ports: vec![port(6443, Requirement::Always), port(2379, Requirement::Sometimes)],
            disk: Disk {
                dir: "/var/lib/knarr".into(),
                free_bytes: 100 << 30,
                total_bytes: 200 << 30,
                free_files: Some(1 << 20),
                sync: Ok(Sync { p50_micros: 900, p99_micros: 4_000 }),
            },
            clock: Clock { synchronised: Some(true), error_micros: 500, unix_seconds: 1_800_000_000, went_back: false },
            capabilities: u64::MAX,
            limits: Limits {
                files: Some(1 << 20),
                inotify_instances: Some(8192),
                inotify_watches: Some(1 << 20),
                processes: Some(1 << 22),
            },
            forwarding: Some(true),
            resolvers: vec!["192.0.2.1".into()],
            registries: Ok("valid"),
        }
    }

    fn cluster() -> Cluster {
        Cluster {
            process: 1,
            failed_checks: Ok(Vec::new()),
            nodes: vec![("a".into(), true), ("b".into(), true)],
            dns: Some(Ok("10.96.0.1".into())),
            certificates: vec![("apiserver".into(), 300), ("ca".into(), 3000)],
            store: Ok(800),
            backup: None,
            manifests: Vec::new(),
        }
    }

    /// Returns the failed checks as `name: verdict`.
    fn wrong(machine: &Machine, cluster: Option<&Cluster>) -> Vec<String> {
        let rows = all(machine, cluster);
        let wrong: Vec<_> = rows.iter().filter(|row| row.verdict != CheckResult::Pass).collect();
        assert!(wrong.iter().all(|row| !row.advice.is_empty()), "every failed check has advice: {wrong:?}");
        assert_eq!(prevents(&rows), wrong.iter().any(|row| row.verdict == CheckResult::Fail));
        wrong.iter().map(|row| format!("{}: {:?}", row.name, row.verdict)).collect()
    }

    #[test]
    fn healthy_host_with_healthy_cluster_passes_all_checks() {
        assert!(wrong(&good(), Some(&cluster())).is_empty());
    }

    #[test]
    fn host_problems_are_detected_with_their_severity() {
        let check = |change: fn(&mut Machine), expect: &[&str]| {
            let mut machine = good();
            change(&mut machine);
            assert_eq!(wrong(&machine, None), expect);
        };
        check(|it| it.kernel = "4.19.0".into(), &["kernel: Fail"]);
        check(|it| it.kernel = "5.10.0-26".into(), &["kernel: Warn"]);
        check(|it| it.kernel = "strange".into(), &["kernel: Warn"]);
        check(|it| it.features[0].tried = FeatureStatus::Fails("no such device".into()), &["overlay: Fail"]);
        check(|it| it.features[1].tried = FeatureStatus::Fails("not supported".into()), &["vxlan: Warn"]);
        check(|it| it.features[0].tried = FeatureStatus::Unknown("not root".into()), &["overlay: Warn"]);
        check(|it| it.cgroups = Cgroups::default(), &["cgroups: Fail"]);
        check(|it| it.cgroups.controllers = BTreeSet::from(["cpu".to_owned()]), &["cgroups: Fail"]);
        let no_hugetlb = |it: &mut Machine| {
            it.cgroups.controllers.remove("hugetlb");
        };
        check(no_hugetlb, &["cgroups: Warn"]);
        check(|it| it.capabilities &= !(1 << 21), &["capabilities: Fail"]);
        check(|it| it.capabilities &= !(1 << 24), &["capabilities: Warn"]);
        assert_eq!(capabilities_lacking(!(1 << 21 | 1 << 24)), ["CAP_SYS_ADMIN"]);
        check(|it| it.ports[0].holder = PortUser::Cluster, &[]);
        check(|it| it.ports[0].holder = PortUser::Other, &["port 6443: Fail"]);
        check(|it| it.ports[1].holder = PortUser::Other, &["port 2379: Warn"]);
        check(|it| it.disk.free_bytes = 1 << 20, &["disk: Fail"]);
        check(|it| it.disk.free_bytes = 1 << 30, &["disk: Warn"]);
        check(|it| it.disk.free_bytes = 9 << 30, &["disk: Warn"]);
        check(|it| it.disk.total_bytes = 4 << 40, &["disk: Warn"]);
        check(|it| it.disk.free_files = Some(3), &["disk: Warn"]);
        check(|it| it.disk.sync = Ok(Sync { p50_micros: 1, p99_micros: 60_000 }), &["sync speed: Warn"]);
        check(|it| it.disk.sync = Err("not writable".into()), &["sync speed: Warn"]);
        check(|it| it.clock.unix_seconds = 0, &["clock: Fail"]);
        check(|it| it.clock.synchronised = Some(false), &["clock: Warn"]);
        check(|it| it.clock.went_back = true, &["clock: Warn"]);
        check(|it| it.limits.files = Some(1024), &["open files: Warn"]);
        check(|it| it.limits.inotify_watches = Some(10), &["inotify: Warn"]);
        check(|it| it.limits.processes = Some(1000), &["processes: Warn"]);
        check(|it| it.forwarding = Some(false), &[]);
        check(|it| it.resolvers.clear(), &["resolver: Warn"]);
        check(|it| it.registries = Err("a.yaml:1: broken".into()), &["registries: Fail"]);
    }

    #[test]
    fn cluster_problems_are_detected_with_their_severity() {
        let check = |change: fn(&mut Cluster), expect: &[&str]| {
            let mut cluster = cluster();
            change(&mut cluster);
            assert_eq!(wrong(&good(), Some(&cluster)), expect);
        };
        check(|it| it.failed_checks = Ok(vec!["etcd".into()]), &["API server: Fail"]);
        check(|it| it.failed_checks = Err("refused".into()), &["API server: Fail"]);
        check(|it| it.nodes[0].1 = false, &["nodes: Warn"]);
        check(|it| it.nodes.iter_mut().for_each(|node| node.1 = false), &["nodes: Fail"]);
        check(|it| it.dns = Some(Err("timed out".into())), &["DNS: Fail"]);
        check(|it| it.dns = None, &[]);
        check(|it| it.certificates[0].1 = 0, &["certificates: Fail"]);
        check(|it| it.certificates[0].1 = 12, &["certificates: Warn"]);
        check(|it| it.store = Ok(500_000), &["store: Warn"]);
        check(|it| it.store = Err("no quorum".into()), &["store: Fail"]);
    }

    #[test]
    fn table_contains_advice_below_each_problem() {
        let mut machine = good();
        machine.features.clear();
        machine.ports.truncate(1);
        machine.ports[0].holder = PortUser::Other;
        let rows = all(&machine, None);
        let text = super::super::table(&rows);
        assert!(text.contains("FAIL  port 6443"), "{text}");
        assert!(text.contains("-> stop that program (`ss -lntp` names it), or choose another with --port"), "{text}");
        let json = super::super::json(&rows);
        assert_eq!(json.get("canStart"), Some(&apimachinery::Value::Bool(false)));
    }
}
