//! `knarr status`: how the cluster of this machine is.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::{ArgMatches, Args, FromArgMatches};
use client::config::Kubeconfig;
use client::{Client, ListOptions, Settings, Target};
use http::Request;
use http_body_util::BodyExt;
use machinery::meta::Meta;
use machinery::{Resource, Value, json};
use pki::{Pki, days_left};

use crate::up::Instance;

/// How a cluster is.
#[derive(Args, Debug)]
struct Status {
    /// The cluster's folder.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
}

pub fn arguments(command: clap::Command) -> clap::Command {
    Status::augment_args(command)
}

/// Prints what is known, and fails if the cluster does not answer.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let Status { data_dir } = Status::from_arg_matches(matches)?;
    let Some(process) = Instance::holder(&data_dir)? else {
        anyhow::bail!("no cluster runs in {}; start it with `knarr up`", data_dir.display());
    };
    let memory = memory_mib(process).map_or_else(String::new, |mib| format!(", {mib} MiB"));
    println!("{:<16} running as process {process}{memory}", "cluster");
    let soonest = Pki::open(&data_dir.join("pki"))?.list()?.into_iter().min_by_key(|(_, seen)| seen.not_after);
    if let Some((name, seen)) = soonest {
        println!(
            "{:<16} the first to end is {name}, in {} days",
            "certificates",
            days_left(seen.not_after, SystemTime::now())
        );
    }
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    executor.block_on(ask(&data_dir))
}

async fn ask(data_dir: &Path) -> Result<()> {
    let config = Kubeconfig::load(&[data_dir.join("admin.kubeconfig")])?.config(None)?;
    let client = Client::connect(&config, Settings { attempts_max: 1, ..Settings::default() })?;
    let version = json::parse(&text(&client, "/version").await?)?;
    println!("{:<16} {} at {}", "version", version.str_at(&["gitVersion"]).unwrap_or("unknown"), config.server);
    let checks = String::from_utf8_lossy(&text(&client, "/readyz?verbose").await?).into_owned();
    let failed: Vec<&str> = checks.lines().filter(|line| line.starts_with("[-]")).collect();
    let verdict = if failed.is_empty() { "ready".to_owned() } else { failed.join(", ") };
    println!("{:<16} {verdict}", "API server");
    let nodes = Resource::cluster("", "v1", "nodes", "Node");
    for node in client.list_all(&Target::all(&nodes), &ListOptions::default()).await?.items {
        println!("{:<16} {} is {}", "node", Meta::of(&node).name(), readiness(&node));
    }
    let leases = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");
    let all = client.list_all(&Target::within(&leases, "kube-system"), &ListOptions::default()).await?;
    for lease in all.items {
        let holder = lease.str_at(&["spec", "holderIdentity"]).unwrap_or_default();
        println!("{:<16} {} is {holder}", "leader", Meta::of(&lease).name());
    }
    Ok(())
}

async fn text(client: &Client, path: &str) -> Result<Bytes> {
    let answer = client.raw(Request::get(path).body(Bytes::new())?).await.context("the API server does not answer")?;
    Ok(answer.into_body().collect().await.map_err(anyhow::Error::from_boxed)?.to_bytes())
}

fn readiness(node: &Value) -> &'static str {
    let conditions = node.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.str_at(&["type"]) == Some("Ready"));
    match ready.and_then(|condition| condition.str_at(&["status"])) {
        Some("True") => "ready",
        Some("False") => "not ready",
        _ => "not heard of",
    }
}

fn memory_mib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib / 1024)
}
