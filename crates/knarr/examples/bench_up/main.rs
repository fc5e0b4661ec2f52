//! Benchmark of `knarr up`: time until the cluster is usable, and its cost while idle.

mod cluster;
mod process;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apimachinery::{Resource, Value, value};
use client::{Client, Event, Target, WatchOptions, WriteOptions};
use tokio::task::JoinSet;

use cluster::Cluster;
use process::Process;

static PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
static NODES: Resource = Resource::cluster("", "v1", "nodes", "Node");

/// Number of starts; the median is reported.
const STARTS: usize = 5;
/// Number of running pods while memory is measured.
const CROWD: usize = 30;
/// Number of pods that are never scheduled, which exist as objects only.
const OBJECTS: usize = 7_200;
/// Concurrent requests that create them.
const WRITERS: usize = 32;
/// Duration of the idle CPU measurement, and the delay before memory is measured.
const IDLE: Duration = Duration::from_secs(60);
const STABILIZATION_DELAY: Duration = Duration::from_secs(10);
/// Time limit of every wait.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Polling interval before the API can be watched.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Times of a start, measured from the start of the command.
struct Start {
    api: Duration,
    node: Duration,
    dns: Duration,
    pod: Duration,
}

fn main() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "containers need root");
    if !cluster::is_in_namespace() {
        return cluster::run_in_namespace();
    }
    let executor = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut starts = Vec::new();
    for _ in 1..STARTS {
        starts.push(executor.block_on(started(&Cluster::start()?))?);
    }
    let cluster = Cluster::start()?;
    starts.push(executor.block_on(started(&cluster))?);
    let median = |of: fn(&Start) -> Duration| {
        let mut all: Vec<Duration> = starts.iter().map(of).collect();
        all.sort();
        all[all.len() / 2].as_secs_f64()
    };
    println!("| what | measured | goal |");
    println!("|---|---|---|");
    let row = |what: &str, measured: String, goal: &str| println!("| {what} | {measured} | {goal} |");
    row("start to API ready", format!("{:.2} s", median(|it| it.api)), "0.3 s");
    row("start to node Ready", format!("{:.2} s", median(|it| it.node)), "0.8 s");
    row("start to DNS answering", format!("{:.2} s", median(|it| it.dns)), "1 s");
    row("start to first pod Running", format!("{:.2} s", median(|it| it.pod)), "1.5 s");
    executor.block_on(async {
        tokio::time::sleep(STABILIZATION_DELAY).await;
        let process = cluster.process();
        row("memory idle", memory(process)?, "100 MB");
        let before = process.processor_time()?;
        tokio::time::sleep(IDLE).await;
        let busy = process.processor_time()?.saturating_sub(before).as_secs_f64() / IDLE.as_secs_f64() * 100.0;
        row("processor idle, over a minute", format!("{busy:.2} % of a core"), "0.3 %");
        let client = cluster.client()?;
        run_pods(&client, CROWD).await?;
        tokio::time::sleep(STABILIZATION_DELAY).await;
        row(&format!("memory with {CROWD} pods"), memory(process)?, "");
        make_objects(&client).await?;
        tokio::time::sleep(STABILIZATION_DELAY).await;
        row(&format!("memory with {OBJECTS} objects more"), memory(process)?, "");
        anyhow::Ok(())
    })?;
    let bytes = std::fs::metadata(cluster.program())?.len();
    row("binary", format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)), "40 MiB");
    Ok(())
}

/// Observes a start as a client would.
async fn started(cluster: &Cluster) -> Result<Start> {
    let started_at = cluster.started_at();
    let client =
        tokio::time::timeout(TIMEOUT, api(cluster)).await.context("the API server did not become ready in time")??;
    let api = started_at.elapsed();
    let node = async {
        seen(&client, &Target::all(&NODES), is_node_ready).await?;
        anyhow::Ok(started_at.elapsed())
    };
    let dns = async {
        while !cluster.is_dns_ready().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        anyhow::Ok(started_at.elapsed())
    };
    let pod = async {
        create(&client, &pod("first")).await?;
        seen(&client, &Target::within(&PODS, "default"), is_running).await?;
        anyhow::Ok(started_at.elapsed())
    };
    let all = async { tokio::try_join!(node, dns, pod) };
    let (node, dns, pod) =
        tokio::time::timeout(TIMEOUT, all).await.context("the cluster did not become usable in time")??;
    Ok(Start { api, node, dns, pod })
}

async fn api(cluster: &Cluster) -> Result<Client> {
    loop {
        if let Ok(client) = cluster.client()
            && let Ok(response) = client.raw(http::Request::get("/readyz").body(bytes::Bytes::new())?).await
            && response.status().is_success()
        {
            return Ok(client);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Creates an object. Retries while the namespace's service account does not exist yet.
async fn create(client: &Client, object: &Value) -> Result<()> {
    let start = Instant::now();
    loop {
        match client.create(&Target::within(&PODS, "default"), object, &WriteOptions::default()).await {
            Ok(_) => return Ok(()),
            Err(error) if start.elapsed() > TIMEOUT => return Err(error.into()),
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

async fn run_pods(client: &Client, count: usize) -> Result<()> {
    let options = WatchOptions { send_initial_events: true, ..WatchOptions::default() };
    let target = Target::within(&PODS, "default");
    let mut watch = client.watch(&target, &options).await?;
    let mut left: std::collections::BTreeSet<String> = (0..count).map(|number| format!("crowd-{number}")).collect();
    for name in &left {
        create(client, &pod(name)).await?;
    }
    let waiting = async {
        while !left.is_empty() {
            let event = watch.next().await.context("the watch ended")??;
            if let Event::Added(pod) | Event::Modified(pod) = event
                && is_running(&pod)
            {
                left.remove(pod.str_at(&["metadata", "name"]).unwrap_or_default());
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(TIMEOUT, waiting).await.context("the pods did not start in time")?
}

async fn make_objects(client: &Client) -> Result<()> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let client = client.clone();
        writers.spawn(async move {
            for number in (writer..OBJECTS).step_by(WRITERS) {
                let mut object = pod(&format!("object-{number}"));
                if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                    spec.insert("schedulerName", "nobody");
                }
                create(&client, &object).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = writers.join_next().await {
        done??;
    }
    Ok(())
}

fn pod(name: &str) -> Value {
    value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "knarr.local/pause", "imagePullPolicy": "IfNotPresent"}],
            "terminationGracePeriodSeconds": 1}})
}

/// Watches until the object satisfies the condition.
async fn seen(client: &Client, target: &Target<'_>, is_good: impl Fn(&Value) -> bool) -> Result<()> {
    let options = WatchOptions { send_initial_events: true, ..WatchOptions::default() };
    let mut watch = client.watch(target, &options).await?;
    loop {
        match watch.next().await.context("the watch ended")?? {
            Event::Added(object) | Event::Modified(object) if is_good(&object) => return Ok(()),
            _ => {}
        }
    }
}

fn is_running(pod: &Value) -> bool {
    pod.str_at(&["status", "phase"]) == Some("Running")
}

fn is_node_ready(node: &Value) -> bool {
    let conditions = node.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
    conditions.iter().any(|it| it.str_at(&["type"]) == Some("Ready") && it.str_at(&["status"]) == Some("True"))
}

fn memory(process: Process) -> Result<String> {
    let (all, own) = process.memory_kib()?;
    Ok(format!("{:.0} MB resident, {:.0} MB of it data", all as f64 * 1.024e-3, own as f64 * 1.024e-3))
}
