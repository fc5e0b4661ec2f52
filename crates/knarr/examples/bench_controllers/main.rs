//! Benchmark of controllers: creates, rolls out and deletes a Deployment of 3,000 replicas on hollow nodes.

mod idle;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::{Key, Value, value};
use client::cache::ChangeQueue;
use controller::kinds;
use hollow_node::node::Size;
use hollow_node::{Nodes, Settings};
use testkit::{Cluster, manage};

#[global_allocator]
static ALLOCATOR: sys::Allocator = sys::Allocator;

const REPLICAS: i64 = 3000;
const NODES: u32 = 30;
/// Limit of queued notifications. The counters of this benchmark read none.
const NOTICES_MAX: usize = 1;

#[tokio::main]
async fn main() {
    let cluster = Cluster::start(&[&kinds::DEPLOYMENTS, &kinds::PODS]).await;
    let size = Size { pods: 500, ..Size::default() };
    let settings = Settings { nodes: NODES, prefix: "n".to_owned(), size };
    let nodes = Nodes::start(cluster.admin(), settings).await.expect("nodes are registered");
    let manager = manage(&cluster.admin());
    println!(
        "a Deployment of {REPLICAS} replicas on {NODES} hollow nodes, store, API server and controllers in one process"
    );
    let start = Instant::now();
    cluster.create(&kinds::DEPLOYMENTS, &deployment()).await;
    let expected = usize::try_from(REPLICAS).expect("few");
    cluster.until(&kinds::PODS, "made", |pods| pods.len() >= expected).await;
    print_elapsed("all pods created", start);
    wait_for_rollout(&cluster, 1, REPLICAS).await;
    print_elapsed("all pods available", start);
    roll(&cluster).await;
    let start = Instant::now();
    let target = client::Target::named(&kinds::DEPLOYMENTS, "default", "web");
    let deleted = cluster.admin().delete(&target, &client::DeleteOptions::default()).await;
    deleted.expect("the Deployment is deleted");
    cluster.until(&kinds::PODS, "gone", controller::Objects::is_empty).await;
    print_elapsed("all pods collected after the Deployment was deleted", start);
    drop((manager, nodes, cluster));
    idle::measure().await.expect("failed to measure an idle controller manager");
}

/// Runs a rolling update and checks that the watch never shows a violation of maxSurge or maxUnavailable.
async fn roll(cluster: &Cluster) {
    let start = Instant::now();
    let (fewest, most) = (REPLICAS - REPLICAS / 4, REPLICAS + (REPLICAS + 3) / 4);
    let image = value!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "v2"}]}}}});
    let patched = cluster.patch(&kinds::DEPLOYMENTS, "web", image).await;
    let generation = Meta::of(&patched).generation();
    let bounds = Bounds::watch(cluster);
    wait_for_rollout(cluster, generation, REPLICAS).await;
    let (low, high) = bounds.seen();
    print_elapsed("rolled over", start);
    println!("  between {low} available (at least {fewest} required) and {high} pods (at most {most})");
    assert!(low >= fewest && high <= most, "maxSurge or maxUnavailable was violated");
}

/// Minimum and maximum pod counts seen by a watch.
struct Bounds {
    counts: Arc<[AtomicI64; 4]>,
    _notices: ChangeQueue,
}

impl Bounds {
    /// Starts to count when all pods are ready. The watch returns the existing pods first.
    fn watch(cluster: &Cluster) -> Self {
        let counts = Arc::new([0, 0, REPLICAS, 0].map(AtomicI64::new));
        let notices = ChangeQueue::new(NOTICES_MAX);
        let counted = Arc::clone(&counts);
        cluster.reader(&kinds::PODS).subscribe(&notices, move |change, _| {
            let [serving, there, low, high] = counted.as_ref();
            let is_there = |pod: &Value| Meta::of(pod).deletion_timestamp().is_none();
            let serves = |pod: &Value| is_there(pod) && Pod(pod).is_ready();
            let by = |is: &dyn Fn(&Value) -> bool| {
                i64::from(change.new.is_some_and(is)) - i64::from(change.old.is_some_and(is))
            };
            let serving = serving.fetch_add(by(&serves), Ordering::SeqCst) + by(&serves);
            let there = there.fetch_add(by(&is_there), Ordering::SeqCst) + by(&is_there);
            if by(&serves) < 0 {
                low.fetch_min(serving, Ordering::SeqCst);
            }
            high.fetch_max(there, Ordering::SeqCst);
        });
        Self { counts, _notices: notices }
    }

    /// Returns the minimum of ready pods and the maximum of all pods.
    fn seen(&self) -> (i64, i64) {
        let [_, _, low, high] = self.counts.as_ref();
        (low.load(Ordering::SeqCst), high.load(Ordering::SeqCst))
    }
}

fn deployment() -> Value {
    value!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "v1"}], "terminationGracePeriodSeconds": 0}}}})
}

async fn wait_for_rollout(cluster: &Cluster, generation: i64, replicas: i64) {
    let key = Key::new("default", "web");
    let is = |found: &Value| is_rolled_out(found, generation, replicas);
    cluster.until(&kinds::DEPLOYMENTS, "settled", |all| all.get(&key).is_some_and(is)).await;
}

fn is_rolled_out(found: &Value, generation: i64, replicas: i64) -> bool {
    number(found, "observedGeneration") >= generation
        && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|field| number(found, field) == replicas)
}

fn number(found: &Value, field: &str) -> i64 {
    found.at(&["status", field]).and_then(Value::as_int).unwrap_or(0)
}

fn print_elapsed(what: &str, start: Instant) {
    let took: Duration = start.elapsed();
    println!("{what} after {:.2} s", took.as_secs_f64());
}
