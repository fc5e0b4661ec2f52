//! `knarr status`: state of the cluster on this host.

mod table;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Result;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Object, Resource, Value, json, value};
use clap::{ArgMatches, Args, FromArgMatches, ValueEnum};
use client::{Client, ListOptions, Target};
use pki::{Pki, days_left};

use crate::output::{out, outln};
use crate::up::{Disk, Instance};
use crate::{admin_client, members};

/// Show the state of the cluster on this host.
#[derive(Args, Debug)]
struct Status {
    /// Data directory of the cluster.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Output format.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Table,
    Json,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Status::augment_args(command)
}

/// Prints the state. If the cluster does not respond, prints the local part and fails.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let Status { data_dir, output } = Status::from_arg_matches(matches)?;
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut report = Object::new();
    let observed = executor.block_on(observe(&data_dir, &mut report));
    if !report.is_empty() {
        let report = Value::Object(report);
        match output {
            Output::Json => outln!("{}", json::to_string_pretty(&report)),
            Output::Table => out!("{}", table::of(&report)),
        }
    }
    observed
}

/// Adds the state of a host to a report, in the order in which it needs more and more of the cluster to respond.
pub(crate) async fn observe(data_dir: &Path, report: &mut Object) -> Result<()> {
    let Some(process) = Instance::holder(data_dir)? else {
        anyhow::bail!("no cluster runs in {}; start it with `knarr up`", data_dir.display());
    };
    let state = if Instance::is_ready(data_dir) { "ready" } else { "starting" };
    report.insert("cluster", value!({"process": process, "state": state, "dataDir": (data_dir.display().to_string())}));
    report.insert("memory", memory(process));
    if let Some(disk) = Disk::of(data_dir) {
        report.insert("disk", value!({"free": (disk.describe()), "warning": (disk.warning().unwrap_or_default())}));
    }
    report.insert("certificates", certificates(data_dir)?);
    if !data_dir.join("admin.kubeconfig").is_file() {
        let components = Instance::components(data_dir);
        report.insert("components", components.iter().map(|name| component(name, "running")).collect::<Vec<_>>());
        let servers = std::fs::read_to_string(data_dir.join("servers")).unwrap_or_default();
        report.insert("servers", servers.lines().map(Value::from).collect::<Vec<_>>());
        return Ok(());
    }
    let config = admin_client::config(data_dir)?;
    let client = admin_client::admin(&config)?;
    let version = json::parse(&admin_client::text(&client, "/version").await?)?;
    let kubernetes = version.str_at(&["gitVersion"]).unwrap_or("unknown");
    let server = config.server.to_string();
    report
        .insert("version", value!({"knarr": (env!("CARGO_PKG_VERSION")), "kubernetes": kubernetes, "server": server}));
    report.insert("components", components(data_dir, &client).await?);
    report.insert("store", store(data_dir, &client).await?);
    let nodes = Resource::cluster("", "v1", "nodes", "Node");
    let nodes = client.list_all(&Target::all(&nodes), &ListOptions::default()).await?.items;
    report.insert("nodes", nodes.iter().map(node).collect::<Vec<_>>());
    let leases = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");
    let leases = client.list_all(&Target::within(&leases, "kube-system"), &ListOptions::default()).await?.items;
    // A released lease has no holder.
    let held = leases.iter().filter(|lease| !lease.text_at(&["spec", "holderIdentity"]).is_empty());
    report.insert("leaders", held.map(leader).collect::<Vec<_>>());
    report.insert("manifests", manifests(&client).await?);
    Ok(())
}

fn component(name: &str, state: &str) -> Value {
    value!({"name": name, "state": state})
}

/// Returns the components. All parts of one process have the same state, except the API server, which has failed
/// checks, and the kubelet, which has a node.
async fn components(data_dir: &Path, client: &Client) -> Result<Vec<Value>> {
    let failed = admin_client::failed_checks(client).await?;
    let not_ready = format!("not ready: {}", failed.join(", "));
    let state = |name: &str| match (name, failed.is_empty()) {
        ("kube-apiserver", true) => "ready",
        ("kube-apiserver", false) => not_ready.as_str(),
        _ => "running",
    };
    let own = Instance::components(data_dir);
    let mut components: Vec<Value> = own.iter().map(|name| component(name, state(name))).collect();
    let pods = Resource::namespaced("", "v1", "pods", "Pod");
    let control_plane = ListOptions { label_selector: "tier=control-plane".to_owned(), ..ListOptions::default() };
    for pod in client.list_all(&Target::within(&pods, "kube-system"), &control_plane).await?.items {
        let phase = pod.str_at(&["status", "phase"]).unwrap_or_default();
        components.push(component(Meta::of(&pod).name(), &format!("{phase} (pod)")));
    }
    Ok(components)
}

/// Returns the size of the embedded store, or all members of a replicated one.
async fn store(data_dir: &Path, client: &Client) -> Result<Object> {
    let mut store = Object::new();
    let dir = data_dir.join("store");
    if let Ok(files) = std::fs::read_dir(&dir) {
        let bytes: u64 = files.flatten().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
        store.insert("dir", dir.display().to_string());
        store.insert("bytes", i64::try_from(bytes).unwrap_or(i64::MAX));
    }
    if let Some(members) = members::of(data_dir)? {
        let rows = members::rows(&members, data_dir, client).await?;
        store.insert("members", rows.iter().map(members::Row::to_value).collect::<Vec<_>>());
    }
    Ok(store)
}

fn certificates(data_dir: &Path) -> Result<Vec<Value>> {
    let now = SystemTime::now();
    let certificates = Pki::at(&data_dir.join("pki")).list()?.into_iter();
    let days = |seen: pki::CertificateInfo| i64::try_from(days_left(seen.not_after, now)).unwrap_or(i64::MAX);
    let mut all: Vec<(String, i64)> = certificates.map(|(name, seen)| (name, days(seen))).collect();
    all.sort_by_key(|(_, days)| *days);
    Ok(all.into_iter().map(|(name, days)| value!({"name": name, "daysLeft": days})).collect())
}

fn node(node: &Value) -> Value {
    let state = match admin_client::is_ready(node) {
        Some(true) => "ready",
        Some(false) => "not ready",
        None => "not responding",
    };
    let info = |field: &str| node.str_at(&["status", "nodeInfo", field]).unwrap_or_default();
    value!({
        "name": (Meta::of(node).name()), "state": state,
        "version": (info("kubeletVersion")), "runtime": (info("containerRuntimeVersion")),
    })
}

/// Returns the state of the manifests directories of all servers.
async fn manifests(client: &Client) -> Result<Vec<Value>> {
    let named = |(name, mut report): (String, Value)| {
        if let Some(report) = report.as_object_mut() {
            report.insert("applySet", name);
        }
        report
    };
    Ok(manifests::reports(client).await?.into_iter().map(named).collect())
}

fn leader(lease: &Value) -> Value {
    let holder = lease.str_at(&["spec", "holderIdentity"]).unwrap_or_default();
    let mut leader: Object = [("lease", Meta::of(lease).name()), ("holder", holder)].into_iter().collect();
    let renewed = lease.str_at(&["spec", "renewTime"]).and_then(|text| Time::parse_micro(text).ok());
    if let Some(renewed) = renewed {
        leader.insert("renewed", renewed.to_string());
    }
    Value::Object(leader)
}

/// Returns resident, private and peak memory of a process. The kernel can reclaim file-backed pages, but not private
/// data.
fn memory(process: u32) -> Value {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let bytes = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse::<i64>().ok().map(|kib| kib << 10)
    };
    match (bytes("VmRSS"), bytes("RssAnon"), bytes("VmHWM")) {
        (Some(all), Some(own), Some(most)) => {
            value!({"residentBytes": all, "privateBytes": own, "peakBytes": most})
        }
        _ => Value::Null,
    }
}
