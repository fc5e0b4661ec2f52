//! Scheduler benchmarks over 5,000 nodes.
//!
//! Measures decisions per CPU second (plain pods, pods with affinity rules, preemption), and memory per node and pod.

use std::hint::black_box;
use std::time::Duration;

use apimachinery::{Key, Value, value};
use scheduler::engine::{Kind, Step};
use scheduler::queue::Options;
use scheduler::schedule::{Context, RandomSource};
use scheduler::{Decision, Engine, Node, Pod, PodId, Profile, Snapshot, schedule};

#[global_allocator]
static ALLOCATOR: sys::Counting<mimalloc::MiMalloc> = sys::Counting::new(mimalloc::MiMalloc);

const NODES: usize = 5_000;
const BUDGET: Duration = Duration::from_millis(1_500);

fn main() {
    let label = |key: &str| value!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}});
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let rules = |field: &str, kind: &str, terms: Value| {
        let terms = Value::from(apimachinery::Object::from_iter([(kind, terms)]));
        value!({"affinity": (apimachinery::Object::from_iter([(field, terms)]))})
    };
    let (zone, host) = ("topology.kubernetes.io/zone", "kubernetes.io/hostname");
    let soft = |key: &str| value!([{"weight": 1, "podAffinityTerm": (label(key))}]);
    let spread = |key: &str, when: &str| {
        value!({"topologySpreadConstraints": [
            {"maxSkew": 5, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": {"matchLabels": {"app": "web"}}}
        ]})
    };
    bench("plain", 0, || value!({}));
    bench("node affinity (one zone)", 0, || {
        let term = value!({"matchExpressions": [{"key": zone, "operator": "In", "values": ["zone1"]}]});
        value!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}})
    });
    bench("node selector (one zone)", 0, || value!({"nodeSelector": {"topology.kubernetes.io/zone": "zone1"}}));
    bench("required affinity (zone)", 0, || rules("podAffinity", required, value!([(label(zone))])));
    bench("required anti-affinity (host)", 0, || rules("podAntiAffinity", required, value!([(label(host))])));
    bench("preferred affinity (host)", 0, || rules("podAffinity", preferred, soft(host)));
    bench("preferred anti-affinity (host)", 0, || rules("podAntiAffinity", preferred, soft(host)));
    bench("spreading (zone)", 0, || spread(zone, "DoNotSchedule"));
    bench("preferred spreading (zone)", 0, || spread(zone, "ScheduleAnyway"));
    bench("spreading (host)", 0, || spread(host, "DoNotSchedule"));
    bench("preemption", 4, || value!({"priority": 10}));
    in_the_way();
    memory();
}

/// Returns the CPU time of this thread, so that other load on the host does not affect the result.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default())
}

/// Whether the command line names the benchmark, or names none at all.
fn is_selected(name: &str) -> bool {
    let mut filters = std::env::args().skip(1).filter(|word| !word.starts_with("--")).peekable();
    filters.peek().is_none() || filters.any(|word| name.contains(&word))
}

/// Measures the engine including its queue: pods that fit are scheduled while a thousand unschedulable pods wait.
fn in_the_way() {
    let mut engine = Engine::new(vec![Profile::default()], Options::default());
    for number in 0..NODES {
        let object = node_object(number);
        engine.observe(Kind::Nodes, &Key::of(&object), Some(&object), 0).expect("a valid node");
    }
    let add = |engine: &mut Engine, name: String, cpu: &str| {
        let object = pod_object(&name, cpu, value!({"schedulerName": "default-scheduler"}));
        engine.observe(Kind::Pods, &Key::of(&object), Some(&object), 0).expect("a valid pod");
    };
    for number in 0..1_000 {
        add(&mut engine, format!("large-{number}"), "100");
    }
    while engine.step(0).is_some() {}
    for number in 0..10_000 {
        add(&mut engine, format!("pod-{number}"), "100m");
    }
    let (started, mut bound) = (cpu_time(), 0_u32);
    while let Some(Step::Bind { pod, .. }) = engine.step(0) {
        engine.bound(&pod);
        bound += 1;
    }
    let rate = f64::from(bound) / (cpu_time() - started).as_secs_f64();
    println!("{:<32} {rate:>9.0} pods/s ({bound} bound)", "1,000 unschedulable in the way");
}

/// Measures the engine's memory per node and pod by the growth of allocated bytes. The objects themselves belong to the
/// shared cache.
fn memory() {
    const PODS: usize = 150_000;
    let mut engine = Engine::new(vec![Profile::default()], Options::default());
    let before = ALLOCATOR.in_use();
    for number in 0..NODES {
        let object = node_object(number);
        engine.observe(Kind::Nodes, &Key::of(&object), Some(&object), 0).expect("a valid node");
    }
    let nodes = ALLOCATOR.in_use();
    for number in 0..PODS {
        let name = format!("deployment-7d9c5b8f6-{number}");
        let spec = value!({"schedulerName": "default-scheduler", "nodeName": (format!("node-{}", number % NODES))});
        let object = pod_object(&name, "10m", spec);
        engine.observe(Kind::Pods, &Key::of(&object), Some(&object), 0).expect("a valid pod");
    }
    let pods = ALLOCATOR.in_use();
    black_box(&engine);
    let (per_node, per_pod) = ((nodes - before) / NODES, (pods - nodes) / PODS);
    println!("memory: {per_node} bytes a node, {per_pod} bytes a pod (of {NODES} nodes and {PODS} pods)");
}

/// Schedules and places pods of one kind until the time limit. First fills each node with `filling` pods, so that each
/// new pod needs a preemption.
fn bench(name: &str, filling: usize, spec: impl Fn() -> Value) {
    if !is_selected(name) {
        return;
    }
    let mut snapshot = Snapshot::default();
    for number in 0..NODES {
        snapshot.set_node(&node(number));
    }
    let filler = pod("filler", "900m", value!({}));
    for number in 0..NODES * filling {
        let mut pod = filler.clone();
        pod.name = format!("filler-{number}").into();
        snapshot.assume(&pod, &format!("node-{}", number % NODES));
    }
    let profile = Profile::default();
    let template = pod("pod", "100m", spec());
    let template = if filling > 0 { pod("pod", "900m", spec()) } else { template };
    let (mut decisions, mut evictions, mut random_source) = (0_u64, 0_u64, RandomSource::default());
    let started = cpu_time();
    while decisions < 20_000 && (decisions % 32 != 0 || cpu_time() - started < BUDGET) {
        let mut pod = template.clone();
        pod.name = format!("pod-{decisions}").into();
        let outcome = schedule(&mut snapshot, &pod, &profile, Context { random_source, ..Context::default() });
        decisions += 1;
        random_source =
            RandomSource { start: outcome.next_start, tie: decisions, preemption_start: decisions as usize * 37 };
        match outcome.decision {
            Decision::Bind { node } => snapshot.assume(&pod, &node),
            Decision::Preempt { node, victims, .. } => {
                for victim in victims {
                    snapshot.remove_pod(PodId::new(&victim.namespace, &victim.name));
                    evictions += 1;
                }
                snapshot.assume(&pod, &node);
            }
            Decision::CallExtenders(_) => break,
            Decision::Unschedulable { message, .. } | Decision::Failed { message } => {
                println!("{name}: stopped after {decisions}: {message}");
                break;
            }
        }
        black_box(&snapshot);
    }
    let rate = decisions as f64 / (cpu_time() - started).as_secs_f64();
    println!("{name:<32} {rate:>9.0} pods/s ({decisions} decisions, {evictions} evictions)");
}

fn node(number: usize) -> Node {
    Node::new(&node_object(number)).expect("a valid node")
}

fn node_object(number: usize) -> Value {
    let name = format!("node-{number}");
    let zone = format!("zone{}", number % 10);
    value!({
        "metadata": {"name": (name.clone()), "labels": {
            "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone, "kubernetes.io/os": "linux"
        }},
        "status": {"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"}}
    })
}

fn pod(name: &str, cpu: &str, spec: Value) -> Pod {
    Pod::new(&pod_object(name, cpu, spec)).expect("a valid pod")
}

fn pod_object(name: &str, cpu: &str, mut spec: Value) -> Value {
    let container = value!({"name": "c", "image": "app:1", "resources": {"requests": {"cpu": cpu, "memory": "500Mi"}}});
    spec.as_object_mut().expect("an object").insert("containers", value!([container]));
    let meta = value!({"name": name, "namespace": "bench", "uid": name, "labels": {"app": "web"}});
    value!({"metadata": meta, "spec": spec})
}
