//! Benchmark of a node: pod start latency and cost of idle pods, with the built-in runtime and with containerd.

mod cluster;
mod processes;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apimachinery::{Resource, Value, value};
use client::{Client, DeleteOptions, Event, Target, WatchOptions, WriteOptions};

use cluster::{Cluster, Engine};
use processes::Sample;

static PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");

/// Number of single pod starts.
const ROUNDS: usize = 20;
/// Number of pods started concurrently.
const CROWD: usize = 100;
/// Number of idle pods.
const IDLE: usize = 30;
/// Duration of the idle measurement.
const IDLE_SPAN: Duration = Duration::from_secs(30);
/// Time limit of every wait.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Measurements of one runtime.
struct Figures {
    alone_p50: Duration,
    alone_p95: Duration,
    crowd: Duration,
    shim_kib: u64,
    idle_percent: f64,
}

fn main() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "containers need root");
    if !cluster::is_in_namespace() {
        return cluster::run_in_namespace();
    }
    let executor = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!("| runtime | POST to Running, p50 | p95 | {CROWD} pods | shim, private | idle with {IDLE} pods |");
    println!("|---|---|---|---|---|---|");
    for engine in [Engine::BuiltIn, Engine::Containerd] {
        let Some(cluster) = Cluster::start(engine)? else {
            println!("containerd or its CNI plugins are not installed: skipping the comparison");
            continue;
        };
        let one = executor.block_on(measure(&cluster, engine))?;
        println!(
            "| {} | {:.0} ms | {:.0} ms | {:.1} s | {} KiB | {:.2} % of a core |",
            engine.name(),
            one.alone_p50.as_secs_f64() * 1e3,
            one.alone_p95.as_secs_f64() * 1e3,
            one.crowd.as_secs_f64(),
            one.shim_kib,
            one.idle_percent
        );
    }
    Ok(())
}

async fn measure(cluster: &Cluster, engine: Engine) -> Result<Figures> {
    let client = cluster.client()?;
    let mut alone = Vec::with_capacity(ROUNDS);
    for n in 0..ROUNDS {
        alone.push(start(&client, &[format!("alone-{n}")]).await?);
        clear(&client).await?;
    }
    alone.sort();
    let names: Vec<String> = (0..CROWD).map(|n| format!("crowd-{n}")).collect();
    let crowd = start(&client, &names).await?;
    clear(&client).await?;
    let names: Vec<String> = (0..IDLE).map(|n| format!("idle-{n}")).collect();
    start(&client, &names).await?;
    let shim_kib = processes::private_kib(engine.shim())?;
    let before = Sample::of(&cluster.parts());
    tokio::time::sleep(IDLE_SPAN).await;
    let idle_percent = Sample::of(&cluster.parts()).since(before).as_secs_f64() / IDLE_SPAN.as_secs_f64() * 100.0;
    clear(&client).await?;
    let at = |percent: usize| alone[(ROUNDS - 1) * percent / 100];
    Ok(Figures { alone_p50: at(50), alone_p95: at(95), crowd, shim_kib, idle_percent })
}

/// Creates pods and waits until all of them run.
async fn start(client: &Client, names: &[String]) -> Result<Duration> {
    let target = Target::within(&PODS, "default");
    let options = WatchOptions { send_initial_events: true, ..WatchOptions::default() };
    let mut watch = client.watch(&target, &options).await?;
    let start_time = Instant::now();
    for name in names {
        let pod = value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": (name.as_str()), "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "knarr.local/pause", "imagePullPolicy": "IfNotPresent"}],
                "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 5}});
        client.create(&target, &pod, &WriteOptions::default()).await?;
    }
    let mut left: std::collections::BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let waiting = async {
        while !left.is_empty() {
            let event = watch.next().await.context("the watch ended")??;
            if let Event::Added(pod) | Event::Modified(pod) = event
                && pod.str_at(&["status", "phase"]) == Some("Running")
            {
                left.remove(pod.str_at(&["metadata", "name"]).unwrap_or_default());
            }
        }
        Ok::<_, anyhow::Error>(start_time.elapsed())
    };
    tokio::time::timeout(TIMEOUT, waiting).await.context("the pods did not start in time")?
}

/// Deletes all pods and waits until none exists.
async fn clear(client: &Client) -> Result<()> {
    let target = Target::within(&PODS, "default");
    let options = WatchOptions { send_initial_events: true, ..WatchOptions::default() };
    let mut watch = client.watch(&target, &options).await?;
    let listed = client.list(&target, &client::ListOptions::default()).await?;
    let mut left = listed.items.len();
    for pod in &listed.items {
        let name = pod.str_at(&["metadata", "name"]).unwrap_or_default();
        client.delete(&Target::named(&PODS, "default", name), &DeleteOptions::default()).await?;
    }
    let waiting = async {
        while left > 0 {
            if let Event::Deleted(Value::Object(_)) = watch.next().await.context("the watch ended")?? {
                left -= 1;
            }
        }
        Ok::<_, anyhow::Error>(())
    };
    tokio::time::timeout(TIMEOUT, waiting).await.context("the pods did not terminate in time")?
}
