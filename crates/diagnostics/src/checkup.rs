//! Diagnosis (`knarr doctor`) of a host and its cluster: one row per check.

mod cluster;
mod machine;

pub use machine::{DiskPressure, capabilities_lacking, disk_pressure};

use std::collections::BTreeSet;

use apimachinery::{Value, value};

/// Observations about a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The kernel release: `6.1.0-13-amd64`.
    pub kernel: String,
    /// Kernel features that were tested.
    pub features: Vec<Feature>,
    pub cgroups: Cgroups,
    /// Ports that components listen on.
    pub ports: Vec<Port>,
    /// The file system of the data directory.
    pub disk: Disk,
    pub clock: Clock,
    /// Effective capabilities of this process, as a bit mask.
    pub capabilities: u64,
    pub limits: Limits,
    /// Whether IP forwarding is enabled; `None` if unknown.
    pub forwarding: Option<bool>,
    /// Name servers of the host.
    pub resolvers: Vec<String>,
    /// The state of the registry settings, or the problem if they cannot be used.
    pub registries: Result<&'static str, String>,
}

/// A required kernel feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    pub name: &'static str,
    pub purpose: &'static str,
    pub need: Requirement,
    /// The result of the test.
    pub tried: FeatureStatus,
}

/// The consequence of a missing feature or port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// No cluster works without it.
    Always,
    /// Some clusters do not work without it.
    Sometimes,
}

/// The result of testing a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeatureStatus {
    Works,
    /// The feature failed, with the reason.
    Fails(String),
    /// The feature could not be tested, with the reason.
    Unknown(String),
}

/// cgroup configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    pub hierarchy: Hierarchy,
    /// Available controllers.
    pub controllers: BTreeSet<String>,
}

/// Mounted cgroup hierarchies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hierarchy {
    /// No hierarchy is mounted.
    #[default]
    Absent,
    /// One hierarchy per controller.
    V1,
    /// Both versions, each with some controllers.
    Hybrid,
    /// The unified hierarchy.
    V2,
}

/// A port that a component listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub number: u16,
    /// The component that listens.
    pub who: &'static str,
    /// The flag that changes the port; empty if there is none.
    pub flag: &'static str,
    pub need: Requirement,
    /// The current user of the port.
    pub holder: PortUser,
}

/// The user of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortUser {
    /// The port is free.
    Free,
    /// The diagnosed cluster uses the port.
    Cluster,
    /// Another process uses the port.
    Other,
}

/// The file system of the data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The data directory.
    pub dir: String,
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// Free inodes; `None` if the file system has no limit.
    pub free_files: Option<u64>,
    /// Latency of writing and syncing 4 KiB, or the reason that it is unknown.
    pub sync: Result<Sync, String>,
}

/// Sync latency percentiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    pub p50_micros: u64,
    pub p99_micros: u64,
}

/// State of the kernel clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Whether the clock is synchronised; `None` if unknown.
    pub synchronised: Option<bool>,
    /// Estimated maximum error.
    pub error_micros: u64,
    /// Seconds since 1970.
    pub unix_seconds: i64,
    /// Whether the time went backwards during the check.
    pub went_back: bool,
}

/// Resource limits; `None` means unlimited or unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Open files per process.
    pub files: Option<u64>,
    /// inotify instances per user.
    pub inotify_instances: Option<u64>,
    /// inotify watches per user.
    pub inotify_watches: Option<u64>,
    /// Processes of the host.
    pub processes: Option<u64>,
}

/// Observations about a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// PID of the process that runs the cluster.
    pub process: u32,
    /// Failed health checks of the API server, or the reason that it does not respond.
    pub failed_checks: Result<Vec<String>, String>,
    /// Node names, and whether they are ready.
    pub nodes: Vec<(String, bool)>,
    /// The cluster DNS response for the API server's name.
    pub dns: Option<Result<String, String>>,
    /// Certificates with their remaining days.
    pub certificates: Vec<(String, u64)>,
    /// Latency of a linearizable read in microseconds, or the error.
    pub store: Result<u64, String>,
    /// The last backup that was verified.
    pub backup: Option<LastBackup>,
    /// The manifests directories, and the number of problems of each.
    pub manifests: Vec<(String, u64)>,
}

/// A backup that was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastBackup {
    pub file: String,
    pub age_seconds: u64,
    /// Interval of scheduled backups.
    pub every_seconds: Option<u64>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckResult {
    Pass,
    /// Some function will be missing or slow.
    Warn,
    /// A cluster does not start or does not work.
    Fail,
}

/// A check with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    /// The checked property.
    pub looks_at: String,
    /// The observed value.
    pub found: String,
    pub verdict: CheckResult,
    /// The recommended action; empty if there is none.
    pub advice: String,
}

/// Evaluates a host and its cluster, if one is running.
pub fn evaluate(machine: &Machine, cluster: Option<&Cluster>) -> Vec<Row> {
    let mut rows = machine::evaluate(machine);
    if let Some(cluster) = cluster {
        rows.extend(cluster::evaluate(cluster));
    }
    rows
}

/// Whether a check prevents a start.
pub fn prevents(rows: &[Row]) -> bool {
    rows.iter().any(|row| row.verdict == CheckResult::Fail)
}

/// Formats the rows as a table.
pub fn table(rows: &[Row]) -> String {
    let width = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or_default();
    let (names, looks) = (width(|row| &row.name), width(|row| &row.looks_at));
    let mut out = String::new();
    for row in rows {
        let mark = match row.verdict {
            CheckResult::Pass => "ok",
            CheckResult::Warn => "warn",
            CheckResult::Fail => "FAIL",
        };
        out.push_str(&format!("{mark:<4}  {:<names$}  {:<looks$}  {}\n", row.name, row.looks_at, row.found));
        if !row.advice.is_empty() {
            out.push_str(&format!("      {:<names$}  -> {}\n", "", row.advice));
        }
    }
    out
}

/// Formats the rows as JSON.
pub fn json(rows: &[Row]) -> Value {
    let row = |row: &Row| {
        let verdict = match row.verdict {
            CheckResult::Pass => "good",
            CheckResult::Warn => "doubtful",
            CheckResult::Fail => "bad",
        };
        value!({
            "check": (row.name.as_str()), "looksAt": (row.looks_at.as_str()), "found": (row.found.as_str()),
            "verdict": verdict, "advice": (row.advice.as_str()),
        })
    };
    value!({"canStart": (!prevents(rows)), "checks": (Value::Array(rows.iter().map(row).collect()))})
}

impl Row {
    fn new(name: impl Into<String>, looks_at: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            looks_at: looks_at.into(),
            found: found.into(),
            verdict: CheckResult::Pass,
            advice: String::new(),
        }
    }

    fn but(mut self, verdict: CheckResult, advice: impl Into<String>) -> Self {
        self.verdict = verdict;
        self.advice = advice.into();
        self
    }
}

impl Requirement {
    const fn without(self) -> CheckResult {
        match self {
            Self::Always => CheckResult::Fail,
            Self::Sometimes => CheckResult::Warn,
        }
    }
}
