//! Scheduler throughput through the API server: decisions, bindings, events and watches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use apimachinery::{Key, Resource, Value, value};
use client::cache::{self, ChangeQueue, Reader, Source};
use client::{Client, Target, WriteOptions};
use controller::kinds;
use controller_runtime::Caches;
use hollow_node::node::Size;
use hollow_node::{Nodes, Settings};
use http_body_util::BodyExt;
use kube_scheduler::events::Recorder;
use kube_scheduler::{Extenders, Metrics, Runner};
use testkit::{Cluster, control};
use tokio::sync::Notify;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: sys::Allocator = sys::Allocator;

/// Concurrent requests while nodes and pods are created.
const AT_ONCE: usize = 64;
/// Limit of a notice queue that is never used: the benchmark only counts.
const NOTICES_MAX: usize = 1;
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

#[tokio::main]
async fn main() {
    sys::reserve_arena();
    // A part of a shape's name selects this shape.
    let word = std::env::args().nth(1).unwrap_or_default();
    println!("the whole path: store, API server, scheduler and bindings in one process");
    for (name, pods, spec) in shapes().into_iter().filter(|(name, ..)| name.contains(&word)) {
        bound(name, 5_000, pods, &spec, Vec::new()).await;
    }
    // The new pod needs three quarters of a node, so three of its four pods must be evicted.
    if "preemption".contains(&word) {
        let high = value!({"priorityClassName": "high", "cpu": "3"});
        bound("preemption", 5_000, 5_000, &high, (0..20_000).map(|number| evictable(number, 5_000)).collect()).await;
    }
    if "unschedulable".contains(&word) {
        let stuck = (0..1_000).map(|number| pod("stuck", number, &value!({"cpu": "100"}))).collect();
        bound("1000 unschedulable pods in the way", 5_000, 5_000, &value!({}), stuck).await;
    }
    if "deployment".contains(&word) {
        deployment(100, 3_000).await;
    }
}

/// Returns upstream's benchmark shapes.
fn shapes() -> Vec<(&'static str, usize, Value)> {
    let term = |key: &str| value!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}});
    let soft = |key: &str| value!([{"weight": 1, "podAffinityTerm": (term(key))}]);
    let required = |field: &str, key: &str| {
        let rules = value!({"requiredDuringSchedulingIgnoredDuringExecution": [(term(key))]});
        value!({"affinity": (apimachinery::Object::from_iter([(field, rules)]))})
    };
    let preferred = |field: &str, key: &str| {
        let rules = value!({"preferredDuringSchedulingIgnoredDuringExecution": (soft(key))});
        value!({"affinity": (apimachinery::Object::from_iter([(field, rules)]))})
    };
    let in_zone = value!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone1"]}]});
    let in_zone = value!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [in_zone]}});
    let spread = value!({"topologySpreadConstraints": [{"maxSkew": 5, "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    vec![
        ("plain", 10_000, value!({})),
        ("node affinity (one zone)", 5_000, value!({"affinity": {"nodeAffinity": in_zone}})),
        ("required affinity (zone)", 3_000, required("podAffinity", ZONE)),
        ("required anti-affinity (host)", 3_000, required("podAntiAffinity", HOST)),
        ("preferred affinity (host)", 3_000, preferred("podAffinity", HOST)),
        ("preferred anti-affinity (host)", 3_000, preferred("podAntiAffinity", HOST)),
        ("spreading (zone)", 3_000, spread),
    ]
}

/// Measures the scheduling of pods that are created before the scheduler starts, with `others` existing before them.
async fn bound(name: &str, nodes: usize, pods: usize, spec: &Value, others: Vec<Value>) {
    let cluster = Cluster::start(&[]).await;
    let client = cluster.admin();
    create(&client, &kinds::NODES, (0..nodes).map(node)).await;
    let class = value!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
        "value": 1000});
    create(&client, &kinds::PRIORITY_CLASSES, std::iter::once(class)).await;
    create(&client, &kinds::PODS, others.into_iter()).await;
    create(&client, &kinds::PODS, (0..pods).map(|number| pod("pod", number, spec))).await;
    let measured = BenchRun::start_counting(&client).await;
    let _scheduler = schedule(&client);
    measured.end(&format!("{name}, {pods} pods on {nodes} nodes"), pods).await;
}

/// Measures a Deployment from its creation until all pods are bound.
async fn deployment(nodes: u32, replicas: usize) {
    let cluster = Cluster::start(&[]).await;
    let client = cluster.admin();
    let settings = Settings { nodes, prefix: "n".to_owned(), size: Size::default() };
    let _nodes = Nodes::start(client.clone(), settings).await.expect("nodes are registered");
    let (_controllers, _scheduler) = (control(&client), schedule(&client));
    let template =
        value!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let object = value!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": (i64::try_from(replicas).expect("few")), "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    let measured = BenchRun::start_counting(&client).await;
    cluster.create(&kinds::DEPLOYMENTS, &object).await;
    measured.end(&format!("a Deployment of {replicas} pods created and bound on {nodes} hollow nodes"), replicas).await;
}

/// Counts pods that are bound, as a watch reports them, and the API requests.
struct BenchRun {
    client: Client,
    requests: BTreeMap<String, u64>,
    number: Arc<AtomicUsize>,
    changed: Arc<Notify>,
    _notices: ChangeQueue,
    _pods: Reader<Value>,
    _watch: JoinSet<()>,
    start: Instant,
}

impl BenchRun {
    async fn start_counting(client: &Client) -> Self {
        let (number, changed) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let source = Source::all(client.clone(), kinds::PODS.clone());
        let (reflector, pods) = cache::new_shared(source, cache::Settings::default(), Vec::new());
        let mut watch = JoinSet::new();
        watch.spawn(reflector.run());
        pods.synced().await.expect("the server runs");
        let notices = ChangeQueue::new(NOTICES_MAX);
        let (counted, notifier) = (Arc::clone(&number), Arc::clone(&changed));
        let has_node = |pod: &Value| pod.str_at(&["spec", "nodeName"]).is_some_and(|name| !name.is_empty());
        pods.subscribe(&notices, move |change, _| {
            // Pods that had a node when first seen do not count.
            if change.new.is_some_and(has_node) && change.old.is_some_and(|old| !has_node(old)) {
                counted.fetch_add(1, Ordering::SeqCst);
                notifier.notify_one();
            }
        });
        let requests = requests(client).await;
        let (client, start) = (client.clone(), Instant::now());
        Self { client, requests, number, changed, _notices: notices, _pods: pods, _watch: watch, start }
    }

    async fn end(&self, what: &str, pods: usize) {
        while self.number.load(Ordering::SeqCst) < pods {
            self.changed.notified().await;
        }
        let seconds = self.start.elapsed().as_secs_f64();
        println!("{what}: {seconds:.2} s, {:.0} pods/s", pods as f64 / seconds);
        let before = |what: &str| self.requests.get(what).copied().unwrap_or(0);
        let made = requests(&self.client).await.into_iter().map(|(what, count)| (count - before(&what), what));
        let mut made: Vec<_> = made.filter(|(count, _)| *count * 100 >= pods as u64).collect();
        made.sort_unstable_by(|a, b| b.cmp(a));
        let made: Vec<String> = made.into_iter().map(|(count, what)| format!("{count} {what}")).collect();
        println!("  requests: {}", made.join(", "));
    }
}

/// Returns the number of requests that the server has handled, by request and status.
async fn requests(client: &Client) -> BTreeMap<String, u64> {
    let request = http::Request::get("/metrics").body(bytes::Bytes::new()).expect("a path");
    let response = client.raw(request).await.expect("the server responds").into_body();
    let text = response.collect().await.expect("the data is complete").to_bytes();
    let mut all = BTreeMap::new();
    for line in String::from_utf8_lossy(&text).lines() {
        let Some((labels, count)) =
            line.strip_prefix("apiserver_request_total{").and_then(|rest| rest.rsplit_once("} "))
        else {
            continue;
        };
        let label = |name: &str| {
            let rest = labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
            rest.unwrap_or_default().trim_end_matches('"')
        };
        let what = format!("{} {} {} {}", label("verb"), label("resource"), label("subresource"), label("code"));
        *all.entry(what).or_default() += count.parse::<u64>().unwrap_or(0);
    }
    all
}

fn schedule(client: &Client) -> JoinSet<()> {
    let caches =
        Caches::start(client, &cache::Settings::default(), Runner::reads()).expect("the requested kinds exist");
    let (recorder, sending) = Recorder::new(client.clone(), "bench");
    let config = kube_scheduler::Config {
        profiles: vec![scheduler::Profile::default()],
        extenders: Extenders::new(&[]).expect("an empty list of extenders is valid"),
        queue: scheduler::queue::Options::default(),
        requests_max: 256,
    };
    let metrics = Arc::new(Metrics::default());
    let shell = Runner::new(client.clone(), caches, recorder, config, metrics).expect("its kinds are watched");
    let mut tasks = JoinSet::new();
    tasks.spawn(sending);
    tasks.spawn(async move {
        let _ = shell.run().await;
    });
    tasks
}

async fn create(client: &Client, resource: &'static Resource, objects: impl Iterator<Item = Value>) {
    let mut requests = JoinSet::new();
    for object in objects {
        while requests.len() >= AT_ONCE {
            requests.join_next().await.expect("a request is in flight").expect("it is taken");
        }
        let client = client.clone();
        requests.spawn(async move {
            let target = Target::within(resource, Key::of(&object).namespace);
            client.create(&target, &object, &WriteOptions::default()).await.expect("it is taken");
        });
    }
    requests.join_all().await;
}

fn node(number: usize) -> Value {
    let name = format!("node-{number}");
    let mut labels = apimachinery::Object::from_iter([(HOST, Value::from(name.clone()))]);
    labels.insert(ZONE, format!("zone{}", number % 10));
    let amounts = value!({"cpu": "4", "memory": "32Gi", "pods": "110"});
    value!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"capacity": (amounts.clone()), "allocatable": amounts}})
}

/// Builds a pod; `cpu` in `spec` is its CPU request, 100m by default.
fn pod(prefix: &str, number: usize, spec: &Value) -> Value {
    let mut spec = spec.clone();
    let fields = spec.as_object_mut().expect("an object");
    let cpu = fields.remove("cpu").unwrap_or_else(|| "100m".into());
    let requests = value!({"cpu": cpu, "memory": "500Mi"});
    fields.insert("containers", value!([{"name": "c", "image": "i", "resources": {"requests": requests}}]));
    value!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": (format!("{prefix}-{number}")), "namespace": "default", "labels": {"app": "web"}},
        "spec": spec})
}

/// Builds an assigned pod that uses a quarter of its node and is deleted immediately.
fn evictable(number: usize, nodes: usize) -> Value {
    let node = format!("node-{}", number % nodes);
    pod("low", number, &value!({"nodeName": node, "cpu": "900m", "terminationGracePeriodSeconds": 0}))
}
