//! `knarr status`: state of the cluster on this host.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Result;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Resource, Value, json};
use clap::{ArgMatches, Args, FromArgMatches};
use client::{Client, ListOptions, Target};
use pki::{Pki, days_left};

use crate::output::outln;
use crate::up::{Disk, Instance};
use crate::{admin_client, members};

/// Show the state of the cluster on this host.
#[derive(Args, Debug)]
struct Status {
    /// Data directory of the cluster.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Status::augment_args(command)
}

/// Prints the state. Fails if the cluster does not respond.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let Status { data_dir } = Status::from_arg_matches(matches)?;
    let Some(process) = Instance::holder(&data_dir)? else {
        anyhow::bail!("no cluster runs in {}; start it with `knarr up`", data_dir.display());
    };
    print_field(
        "cluster",
        &format!("process {process}, {}", if Instance::is_ready(&data_dir) { "ready" } else { "starting" }),
    );
    print_field("memory", &memory(process));
    if let Some(disk) = Disk::of(&data_dir) {
        print_field(
            "disk",
            &[disk.describe().as_str()].into_iter().chain(disk.warning()).collect::<Vec<_>>().join("; "),
        );
    }
    certificates(&data_dir)?;
    if !data_dir.join("admin.kubeconfig").is_file() {
        node(&data_dir);
        return Ok(());
    }
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    executor.block_on(print_status(&data_dir))
}

/// Prints the state of a host without a server: its components, and the servers that it uses.
fn node(data_dir: &Path) {
    for name in Instance::components(data_dir) {
        print_field("component", &format!("{name} running"));
    }
    let servers = std::fs::read_to_string(data_dir.join("servers")).unwrap_or_default();
    let servers: Vec<&str> = servers.lines().collect();
    print_field(
        "servers",
        &format!("{}; run `knarr status` on one of them for the state of the cluster", servers.join(", ")),
    );
}

async fn print_status(data_dir: &Path) -> Result<()> {
    let config = admin_client::config(data_dir)?;
    let client = admin_client::admin(&config)?;
    let version = json::parse(&admin_client::text(&client, "/version").await?)?;
    let kubernetes = version.str_at(&["gitVersion"]).unwrap_or("unknown");
    print_field(
        "version",
        &format!("knarr {}, Kubernetes {kubernetes} at {}", env!("CARGO_PKG_VERSION"), config.server),
    );
    components(data_dir, &client).await?;
    store(data_dir).await?;
    let nodes = Resource::cluster("", "v1", "nodes", "Node");
    for node in client.list_all(&Target::all(&nodes), &ListOptions::default()).await?.items {
        let readiness = match admin_client::is_ready(&node) {
            Some(true) => "ready",
            Some(false) => "not ready",
            None => "not responding",
        };
        let version = node.str_at(&["status", "nodeInfo", "kubeletVersion"]).unwrap_or_default();
        let runtime = node.str_at(&["status", "nodeInfo", "containerRuntimeVersion"]).unwrap_or_default();
        print_field("node", &format!("{} is {readiness}, {version}, {runtime}", Meta::of(&node).name()));
    }
    let leases = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");
    let all = client.list_all(&Target::within(&leases, "kube-system"), &ListOptions::default()).await?;
    for lease in all.items {
        print_field("leader", &leader(&lease));
    }
    Ok(())
}

/// Prints the components. All parts of one process have the same state, except the API server, which has failed checks,
/// and the kubelet, which has a node.
async fn components(data_dir: &Path, client: &Client) -> Result<()> {
    let failed = admin_client::failed_checks(client).await?;
    for name in Instance::components(data_dir) {
        let health = match (name.as_str(), failed.is_empty()) {
            ("kube-apiserver", true) => "ready".to_owned(),
            ("kube-apiserver", false) => format!("not ready: {}", failed.join(", ")),
            _ => "running".to_owned(),
        };
        print_field("component", &format!("{name} {health}"));
    }
    let pods = Resource::namespaced("", "v1", "pods", "Pod");
    let control_plane = ListOptions { label_selector: "tier=control-plane".to_owned(), ..ListOptions::default() };
    for pod in client.list_all(&Target::within(&pods, "kube-system"), &control_plane).await?.items {
        let phase = pod.str_at(&["status", "phase"]).unwrap_or_default();
        print_field("component", &format!("{} {phase} (pod)", Meta::of(&pod).name()));
    }
    Ok(())
}

/// Prints the size of the embedded store, or all members of a replicated one.
async fn store(data_dir: &Path) -> Result<()> {
    let dir = data_dir.join("store");
    if let Ok(files) = std::fs::read_dir(&dir) {
        let bytes: u64 = files.flatten().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
        print_field("store", &format!("embedded, {} MiB in {}", bytes >> 20, dir.display()));
    }
    let Some(members) = members::of(data_dir)? else { return Ok(()) };
    for members::Row { member, role, alarm } in members::rows(&members).await? {
        print_field(
            "store",
            &format!("member {} is {role}, alarm: {alarm}, at {}", member.name, member.peer_urls.join(",")),
        );
    }
    Ok(())
}

fn certificates(data_dir: &Path) -> Result<()> {
    let now = SystemTime::now();
    let mut all: Vec<(String, u64)> = Pki::at(&data_dir.join("pki"))
        .list()?
        .into_iter()
        .map(|(name, seen)| (name, days_left(seen.not_after, now)))
        .collect();
    all.sort_by_key(|(_, days)| *days);
    // Most certificates were issued on the same day, so those with the same expiry are printed in one line.
    for group in all.chunk_by(|one, other| one.1 == other.1) {
        let names: Vec<&str> = group.iter().map(|(name, _)| name.as_str()).collect();
        print_field("certificates", &format!("{} days left: {}", group[0].1, names.join(", ")));
    }
    Ok(())
}

fn leader(lease: &Value) -> String {
    let name = Meta::of(lease).name();
    let holder = lease.str_at(&["spec", "holderIdentity"]).unwrap_or_default();
    let renewed = lease.str_at(&["spec", "renewTime"]).and_then(|text| Time::parse_micro(text).ok());
    match renewed {
        Some(at) => format!("{name} is {holder}, renewed at {at}"),
        None => format!("{name} is {holder}"),
    }
}

/// Returns resident, private and peak memory of a process. The kernel can reclaim file-backed pages, but not private
/// data.
fn memory(process: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mib = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib >> 10)
    };
    match (mib("VmRSS"), mib("RssAnon"), mib("VmHWM")) {
        (Some(all), Some(own), Some(most)) => format!("{all} MiB resident, {own} MiB of it private, {most} MiB peak"),
        _ => "unknown".to_owned(),
    }
}

fn print_field(what: &str, text: &str) {
    outln!("{what:<16} {text}");
}
