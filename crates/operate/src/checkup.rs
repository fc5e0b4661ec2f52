//! Judges what was observed of a machine, and of the cluster that runs on it: a row a check.

mod cluster;
mod machine;

pub use machine::{DiskPressure, capabilities_lacking, disk_pressure};

use std::collections::BTreeSet;

use machinery::{Value, value};

/// What was seen of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The kernel's release: `6.1.0-13-amd64`.
    pub kernel: String,
    /// What the kernel was asked to do.
    pub features: Vec<Feature>,
    /// How processes are grouped.
    pub cgroups: Cgroups,
    /// Ports that components listen on.
    pub ports: Vec<Port>,
    /// Where the data is.
    pub disk: Disk,
    /// What time it is.
    pub clock: Clock,
    /// The capabilities of this process, a bit each.
    pub capabilities: u64,
    /// What a process may have.
    pub limits: Limits,
    /// Whether packets go from one interface to another; `None` if the kernel does not say.
    pub forwarding: Option<bool>,
    /// The name servers of this machine.
    pub resolvers: Vec<String>,
}

/// Something that the kernel must be able to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// What it is called.
    pub name: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// What is missing without it.
    pub need: Need,
    /// What came of trying.
    pub tried: Tried,
}

/// What is missing without something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing works.
    Always,
    /// Some clusters do not.
    Sometimes,
}

/// What came of trying something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It works.
    Works,
    /// It does not, for this reason.
    Fails(String),
    /// It could not be tried, for this reason.
    Unknown(String),
}

/// How processes are grouped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// Which hierarchies are mounted.
    pub hierarchy: Hierarchy,
    /// What can be limited.
    pub controllers: BTreeSet<String>,
}

/// Which hierarchies of control groups a machine has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hierarchy {
    /// None.
    #[default]
    Absent,
    /// One for each controller.
    V1,
    /// Both, with some controllers in each.
    Hybrid,
    /// A single one.
    V2,
}

/// A port that a component listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number.
    pub number: u16,
    /// Who listens.
    pub who: &'static str,
    /// The flag that chooses another; empty if there is none.
    pub flag: &'static str,
    /// Whether nothing works without it.
    pub need: Need,
    /// Who has it now.
    pub holder: Holder,
}

/// Who has a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody.
    Nobody,
    /// The cluster that is looked at.
    Ours,
    /// Somebody else.
    Other,
}

/// Where the data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The folder.
    pub folder: String,
    /// Room for data.
    pub free_bytes: u64,
    /// All that the disk has.
    pub total_bytes: u64,
    /// Room for files; `None` where files take only bytes.
    pub free_files: Option<u64>,
    /// How long 4 KiB take to be safe, or why that is not known.
    pub sync: Result<Sync, String>,
}

/// How long writes take to be safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// Half of them are done by then.
    pub p50_micros: u64,
    /// All but one in a hundred are.
    pub p99_micros: u64,
}

/// What the kernel says of its clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Whether somebody keeps it true; `None` if the kernel does not say.
    pub synchronised: Option<bool>,
    /// By how much it may be wrong.
    pub error_micros: u64,
    /// Seconds since 1970.
    pub unix_seconds: i64,
    /// Whether time went back while it was looked at.
    pub went_back: bool,
}

/// What a process may have; `None` is no limit, or an unknown one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Files that are open at once.
    pub files: Option<u64>,
    /// Groups of watches on files, of one user.
    pub inotify_instances: Option<u64>,
    /// Watches on files, of one user.
    pub inotify_watches: Option<u64>,
    /// Processes of the machine.
    pub processes: Option<u64>,
}

/// What was seen of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The process that runs it.
    pub process: u32,
    /// Checks of the API server that fail, or why it does not answer.
    pub failed_checks: Result<Vec<String>, String>,
    /// Nodes, and whether they are ready.
    pub nodes: Vec<(String, bool)>,
    /// What the cluster's name server said of the API server's name.
    pub dns: Option<Result<String, String>>,
    /// Certificates, and the days that are left of them.
    pub certificates: Vec<(String, u64)>,
    /// How long the store took to answer a read that all members agree on, in microseconds.
    pub store: Result<u64, String>,
}

/// What is thought of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Something will be missing or slow.
    Doubtful,
    /// A cluster does not start, or does not work.
    Bad,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is called.
    pub name: String,
    /// What it looks at.
    pub looks_at: String,
    /// What was found.
    pub found: String,
    /// What is thought of it.
    pub verdict: Verdict,
    /// What to do; empty if nothing.
    pub advice: String,
}

/// Judges a machine, and the cluster on it if one runs.
pub fn judge(machine: &Machine, cluster: Option<&Cluster>) -> Vec<Row> {
    let mut rows = machine::judge(machine);
    if let Some(cluster) = cluster {
        rows.extend(cluster::judge(cluster));
    }
    rows
}

/// Whether something would prevent a start.
pub fn prevents(rows: &[Row]) -> bool {
    rows.iter().any(|row| row.verdict == Verdict::Bad)
}

/// As a table for people.
pub fn table(rows: &[Row]) -> String {
    let width = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or_default();
    let (names, looks) = (width(|row| &row.name), width(|row| &row.looks_at));
    let mut out = String::new();
    for row in rows {
        let mark = match row.verdict {
            Verdict::Good => "ok",
            Verdict::Doubtful => "warn",
            Verdict::Bad => "FAIL",
        };
        out.push_str(&format!("{mark:<4}  {:<names$}  {:<looks$}  {}\n", row.name, row.looks_at, row.found));
        if !row.advice.is_empty() {
            out.push_str(&format!("      {:<names$}  -> {}\n", "", row.advice));
        }
    }
    out
}

/// As JSON for programs.
pub fn json(rows: &[Row]) -> Value {
    let row = |row: &Row| {
        let verdict = match row.verdict {
            Verdict::Good => "good",
            Verdict::Doubtful => "doubtful",
            Verdict::Bad => "bad",
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
            verdict: Verdict::Good,
            advice: String::new(),
        }
    }

    fn but(mut self, verdict: Verdict, advice: impl Into<String>) -> Self {
        self.verdict = verdict;
        self.advice = advice.into();
        self
    }
}

impl Need {
    const fn without(self) -> Verdict {
        match self {
            Self::Always => Verdict::Bad,
            Self::Sometimes => Verdict::Doubtful,
        }
    }
}
