//! Cost of an idle kube-controller-manager process with many objects of each workload kind.

#[path = "../bench_api/server.rs"]
mod server;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use apimachinery::{Resource, Value, value};
use client::{Client, ListOptions, Target, WriteOptions};
use controller::kinds;
use tokio::task::JoinSet;

use server::Server;

/// Number of objects per kind.
const OBJECTS: usize = 1000;
/// Duration of the measurement.
const WINDOW: Duration = Duration::from_secs(30);
/// Concurrent requests while the objects are created.
const AT_ONCE: usize = 32;

/// Creates the objects, waits until the controller manager has reconciled them, and measures.
pub(crate) async fn measure() -> Result<()> {
    let this = std::env::current_exe().context("failed to find the path of this executable")?;
    let examples = this.parent().context("this executable is not in a directory")?;
    let program = examples.parent().context("this executable is not in a target directory")?.join("knarr");
    let dir = tempfile::tempdir_in(examples)?;
    let server = Server::start(&program, dir.path())?;
    server.ready().await?;
    let manager = Manager::start(&program, dir.path(), &server)?;
    let client = server.connect()?;
    fill(&client).await?;
    wait_until_stable(&client).await?;
    let before = (manager.cpu_seconds()?, server.cpu_seconds()?);
    tokio::time::sleep(WINDOW).await;
    let share = |before: f64, after: f64| (after - before) / WINDOW.as_secs_f64() * 100.0;
    let of_manager = share(before.0, manager.cpu_seconds()?);
    println!("{OBJECTS} idle objects of each workload kind: the controller manager uses {of_manager:.2} % of a core");
    println!("  the API server uses {:.2} %, and {:.0} MiB", share(before.1, server.cpu_seconds()?), server.rss_mib()?);
    Ok(())
}

struct Manager(Child);

impl Manager {
    fn start(program: &Path, dir: &Path, server: &Server) -> Result<Self> {
        let kubeconfig = dir.join("kubeconfig");
        let text = value!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": (server.config.server.to_string()), "insecure-skip-tls-verify": true}}],
            "users": [{"name": "u", "user": {"token": (server::TOKEN)}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
        std::fs::write(&kubeconfig, text.to_string())?;
        let process = Command::new(program)
            .args(["kube-controller-manager", "--secure-port=0", "--kube-api-qps=5000", "--kube-api-burst=5000"])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(process))
    }

    fn cpu_seconds(&self) -> Result<f64> {
        server::cpu_seconds(self.0.id())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn fill(client: &Client) -> Result<()> {
    let mut under_way = JoinSet::new();
    for number in 0..OBJECTS {
        for (resource, object) in objects(number) {
            while under_way.len() >= AT_ONCE {
                under_way.join_next().await.context("one is under way")???;
            }
            let client = client.clone();
            under_way.spawn(async move {
                let made = client.create(&Target::within(resource, "default"), &object, &WriteOptions::default()).await;
                made.map(drop).with_context(|| format!("{object}"))
            });
        }
    }
    while let Some(done) = under_way.join_next().await {
        done??;
    }
    Ok(())
}

/// Returns one object of each workload kind, each with zero pods.
fn objects(number: usize) -> Vec<(&'static Resource, Value)> {
    let name = format!("idle-{number}");
    let pod = value!({"containers": [{"name": "c", "image": "none"}]});
    let template = value!({"metadata": {"labels": {"app": (name.as_str())}}, "spec": (pod.clone())});
    let once = value!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}});
    let job = value!({"suspend": true, "template": (once.clone())});
    let selector = value!({"matchLabels": {"app": (name.as_str())}});
    let workload = value!({"replicas": 0, "selector": selector, "template": (template.clone())});
    let mut on_nodes = workload.clone();
    if let Some(spec) = on_nodes.as_object_mut() {
        spec.remove("replicas");
    }
    let old = value!({"replicas": 0, "selector": {"app": (name.as_str())}, "template": template});
    let cron = value!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": once}}});
    let object = |resource: &'static Resource, spec: Value| {
        let metadata = value!({"name": (name.as_str()), "namespace": "default"});
        let object = value!({"apiVersion": (resource.api_version()), "kind": (resource.kind.clone()), "metadata": metadata, "spec": spec});
        (resource, object)
    };
    vec![
        object(&kinds::DEPLOYMENTS, workload.clone()),
        object(&kinds::REPLICA_SETS, workload.clone()),
        object(&kinds::STATEFUL_SETS, workload),
        object(&kinds::DAEMON_SETS, on_nodes),
        object(&kinds::REPLICATION_CONTROLLERS, old),
        object(&kinds::JOBS, job),
        object(&kinds::CRON_JOBS, cron),
    ]
}

/// Waits until no objects except leases change any more.
async fn wait_until_stable(client: &Client) -> Result<()> {
    let newest = || async {
        let mut newest = 0;
        for resource in
            [&kinds::DEPLOYMENTS, &kinds::REPLICA_SETS, &kinds::STATEFUL_SETS, &kinds::DAEMON_SETS, &kinds::JOBS]
        {
            let all = client.list(&Target::all(resource), &ListOptions::default()).await?;
            let version =
                |object: &Value| apimachinery::meta::Meta::of(object).resource_version().parse().unwrap_or(0u64);
            newest = all.items.iter().map(version).max().unwrap_or(0).max(newest);
        }
        anyhow::Ok(newest)
    };
    let mut before = newest().await?;
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let now = newest().await?;
        if now == before {
            return Ok(());
        }
        before = now;
    }
}
