//! End-to-end tests of scheduling with hollow nodes that run the pods.

use std::collections::BTreeMap;

use apimachinery::{Key, Value, value};
use client::{Client, Patch, Target, WriteOptions};
use controller::{Objects, kinds};
use hollow_node::node::Size;
use hollow_node::{Nodes, Settings};
use testkit::Cluster;

use crate::cluster::{node_of, placed, schedule};
use crate::{condition, waits};

const ZONE: &str = "topology.kubernetes.io/zone";

/// Creates a node with this CPU capacity for each zone.
async fn nodes(cluster: &Cluster, prefix: &str, zones: &[&str], cpu: &str) -> Nodes {
    let size = Size { cpu: cpu.to_owned(), ..Size::default() };
    let settings = Settings { nodes: u32::try_from(zones.len()).unwrap(), prefix: prefix.to_owned(), size };
    let nodes = Nodes::start(cluster.admin(), settings).await.unwrap();
    for (number, zone) in zones.iter().enumerate() {
        let labels = apimachinery::Object::from_iter([(ZONE, *zone)]);
        let patch = Patch::Merge(value!({"metadata": {"labels": labels}}));
        let key = Key::cluster(format!("{prefix}{number}"));
        let target = Target::object(&kinds::NODES, &key);
        cluster.admin().patch(&target, &patch, &WriteOptions::default()).await.unwrap();
    }
    nodes
}

/// Creates a pod with this CPU request.
async fn pod(cluster: &Cluster, name: &str, cpu: &str, mut spec: Value) -> Value {
    let container = value!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    spec.as_object_mut().unwrap().insert("containers", value!([container]));
    let meta = value!({"name": name, "namespace": "default", "labels": {"app": "web", "pod": name}});
    let pod = value!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec});
    cluster.create(&kinds::PODS, &pod).await
}

async fn priority_class(client: &Client) {
    let class = value!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
        "value": 1000});
    client.create(&Target::all(&kinds::PRIORITY_CLASSES), &class, &WriteOptions::default()).await.unwrap();
}

fn runs(pods: &Objects, name: &str) -> bool {
    pods.get(&Key::new("default", name)).and_then(|pod| pod.str_at(&["status", "phase"])) == Some("Running")
}

/// Returns the number of running pods.
fn running(pods: &Objects) -> usize {
    pods.iter().filter(|entry| runs(pods, &entry.key.name)).count()
}

/// Returns pod counts grouped by a property of their nodes, fewest first.
fn counts(pods: &Objects, of: impl Fn(String) -> String) -> Vec<usize> {
    let mut counts = BTreeMap::new();
    for entry in pods.iter() {
        *counts.entry(of(node_of(pods, &entry.key.name))).or_insert(0) += 1;
    }
    let mut counts: Vec<_> = counts.into_values().collect();
    counts.sort_unstable();
    counts
}

/// Returns type, action and note of an event about a pod.
fn event(events: &Objects, reason: &str, about: &str) -> Option<[String; 3]> {
    let is = |event: &Value| {
        event.str_at(&["reason"]) == Some(reason)
            && event.str_at(&["regarding", "name"]) == Some(about)
            && event.str_at(&["reportingController"]) == Some("default-scheduler")
    };
    let found = events.iter().find(|entry| is(&entry.value))?;
    Some(["type", "action", "note"].map(|field| found.value.text_at(&[field]).to_owned()))
}

async fn find_event(cluster: &Cluster, reason: &str, about: &str) -> [String; 3] {
    let events = cluster.until(&kinds::EVENTS_K8S_IO, "told", |all| event(all, reason, about).is_some()).await;
    event(&events, reason, about).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn most_allocated_profile_packs_pods() {
    let cluster = Cluster::start(&[&kinds::PODS]).await;
    let _nodes = nodes(&cluster, "n", &["a", "a", "a"], "4").await;
    let _scheduler = schedule(
        &cluster.admin(),
        "profiles:\n- plugins: {score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit}]}}\n  pluginConfig:\n  \
         - name: NodeResourcesFit\n    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}\n",
    );
    for number in 0..6 {
        pod(&cluster, &format!("p{number}"), "1", value!({})).await;
    }
    let pods = cluster.until(&kinds::PODS, "all run", |pods| running(pods) == 6).await;
    assert_eq!(counts(&pods, |node| node), [2, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_spread_over_zones() {
    let cluster = Cluster::start(&[&kinds::PODS]).await;
    let zones = ["a", "b", "c", "c"];
    let _nodes = nodes(&cluster, "n", &zones, "8").await;
    let _scheduler = schedule(&cluster.admin(), "");
    for number in 0..9 {
        let spread = value!([{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}}}]);
        pod(&cluster, &format!("p{number}"), "100m", value!({"topologySpreadConstraints": spread})).await;
    }
    let pods = cluster.until(&kinds::PODS, "all run", |pods| running(pods) == 9).await;
    let zone = |node: String| zones[node[1..].parse::<usize>().unwrap()].to_owned();
    assert_eq!(counts(&pods, zone), [3, 3, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unschedulable_pod_reports_reasons_and_new_node_wakes_only_fitting_pods() {
    let cluster = Cluster::start(&[&kinds::PODS, &kinds::EVENTS_K8S_IO]).await;
    let _small = nodes(&cluster, "n", &["a"], "1").await;
    let scheduler = schedule(&cluster.admin(), "");
    pod(&cluster, "small", "3", value!({})).await;
    pod(&cluster, "large", "30", value!({})).await;
    let both = |pods: &Objects| waits(pods, "small") && waits(pods, "large");
    let pods = cluster.until(&kinds::PODS, "both wait", both).await;
    let expected = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are \
               available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(condition(&pods, "small").unwrap().str_at(&["message"]), Some(expected));
    assert_eq!(find_event(&cluster, "FailedScheduling", "large").await, ["Warning", "Scheduling", expected]);
    let _more = nodes(&cluster, "m", &["a"], "4").await;
    cluster.until(&kinds::PODS, "small runs", |pods| runs(pods, "small")).await;
    let note = "Successfully assigned default/small to m0";
    assert_eq!(find_event(&cluster, "Scheduled", "small").await, ["Normal", "Binding", note]);
    let text = scheduler.metrics.text();
    assert!(text.contains("attempts_total{result=\"unschedulable\"} 2\n"), "large was not tried again:\n{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn preemption_avoids_disruption_budget_violations() {
    let cluster = Cluster::start(&[&kinds::PODS, &kinds::POD_DISRUPTION_BUDGETS, &kinds::EVENTS_K8S_IO]).await;
    let _nodes = nodes(&cluster, "n", &["a", "a"], "4").await;
    let _controllers = testkit::control(&cluster.admin());
    priority_class(&cluster.admin()).await;
    for (name, least) in [("guarded", 1), ("free", 0)] {
        let spec = value!({"minAvailable": least, "selector": {"matchLabels": {"pod": name}}});
        let budget = value!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
            "spec": spec});
        cluster.create(&kinds::POD_DISRUPTION_BUDGETS, &budget).await;
    }
    let _scheduler = schedule(&cluster.admin(), "");
    for name in ["guarded", "free"] {
        pod(&cluster, name, "3", value!({})).await;
    }
    let pods = cluster.until(&kinds::PODS, "both run", |pods| running(pods) == 2).await;
    let allows = |all: &Objects, name: &str| {
        let budget = all.get(&Key::new("default", name)).filter(|it| it["status"]["currentHealthy"] == 1.into());
        budget.and_then(|it| it.at(&["status", "disruptionsAllowed"])?.as_int())
    };
    let counted = |all: &Objects| allows(all, "guarded") == Some(0) && allows(all, "free") == Some(1);
    cluster.until(&kinds::POD_DISRUPTION_BUDGETS, "counted", counted).await;
    let node = node_of(&pods, "free");
    let high = pod(&cluster, "high", "3", value!({"priorityClassName": "high"})).await;
    let pods = cluster.until(&kinds::PODS, "pod high is running", |pods| runs(pods, "high")).await;
    assert_eq!(node_of(&pods, "high"), node);
    assert!(pods.get(&Key::new("default", "free")).is_none());
    assert!(runs(&pods, "guarded"));
    let uid = high.str_at(&["metadata", "uid"]).unwrap();
    let note = format!("Preempted by pod {uid} on node {node}");
    assert_eq!(find_event(&cluster, "Preempted", "free").await, ["Normal", "Preempting", &note]);
}

#[tokio::test(flavor = "multi_thread")]
async fn gated_pod_is_scheduled_after_gate_removal() {
    let cluster = Cluster::start(&[&kinds::PODS]).await;
    let _nodes = nodes(&cluster, "n", &["a"], "4").await;
    let _scheduler = schedule(&cluster.admin(), "");
    pod(&cluster, "gated", "1", value!({"schedulingGates": [{"name": "example.com/g"}]})).await;
    pod(&cluster, "open", "1", value!({})).await;
    let pods = cluster.until(&kinds::PODS, "pod open is running", |pods| runs(pods, "open")).await;
    assert_eq!(node_of(&pods, "gated"), "");
    let pod_condition = condition(&pods, "gated").unwrap();
    let fields = ["status", "reason", "message"].map(|field| pod_condition.str_at(&[field]).unwrap());
    assert_eq!(fields, ["False", "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"]);
    let target = Target::named(&kinds::PODS, "default", "gated");
    let patch = Patch::Merge(value!({"spec": {"schedulingGates": null}}));
    cluster.admin().patch(&target, &patch, &WriteOptions::default()).await.unwrap();
    let pods = cluster.until(&kinds::PODS, "pod gated is running", |pods| runs(pods, "gated")).await;
    assert_eq!(condition(&pods, "gated").unwrap().str_at(&["status"]), Some("True"));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_scheduler_handles_only_pods_with_its_name() {
    let cluster = Cluster::start(&[&kinds::PODS]).await;
    let _nodes = nodes(&cluster, "n", &["a"], "8").await;
    let client = cluster.admin();
    let _first = schedule(&client, "profiles: [{schedulerName: default-scheduler}, {schedulerName: third}]\n");
    let second = schedule(&client, "profiles: [{schedulerName: second}]\n");
    for name in ["default-scheduler", "second", "third", "nobody"] {
        pod(&cluster, name, "1", value!({"schedulerName": name})).await;
    }
    let pods = cluster.until(&kinds::PODS, "three run", |pods| running(pods) == 3).await;
    assert_eq!((node_of(&pods, "nobody").as_str(), placed(&pods)), ("", 3));
    assert!(second.metrics.text().contains("attempts_total{result=\"scheduled\"} 1\n"));
}
