//! The scheduler against the real API server and store, inside the process.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod cluster;
mod devices;
mod extenders;

use std::collections::BTreeMap;

use client::{ListOptions, Patch, Target, WriteOptions};
use machinery::{Key, Resource, Value, value};
use reconcile::{Objects, kinds};

use cluster::{Cluster, node_of, placed};

static EVENTS: Resource = Resource::namespaced("events.k8s.io", "v1", "events", "Event");

/// How many pods each node has, in the order of the nodes' names.
fn by_node(pods: &Objects) -> Vec<usize> {
    let mut counts = BTreeMap::new();
    for entry in pods.iter() {
        *counts.entry(node_of(pods, &entry.key.name)).or_insert(0) += 1;
    }
    counts.into_values().collect()
}

fn condition<'a>(pods: &'a Objects, name: &str) -> Option<&'a Value> {
    let pod = pods.get(&Key::new("default", name))?;
    let conditions = pod.at(&["status", "conditions"])?.as_array()?;
    conditions.iter().find(|it| it.str_at(&["type"]) == Some("PodScheduled"))
}

fn waits(pods: &Objects, name: &str) -> bool {
    condition(pods, name).and_then(|it| it.str_at(&["reason"])) == Some("Unschedulable")
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_packed_when_the_profile_says_so() {
    let cluster = Cluster::start().await;
    for node in ["n1", "n2", "n3"] {
        cluster.node(node, "a", "4").await;
    }
    let _scheduler = cluster.schedule(
        "profiles:\n- plugins: {score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit}]}}\n  pluginConfig:\n  \
         - name: NodeResourcesFit\n    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}\n",
    );
    for number in 0..6 {
        cluster.pod(&format!("p{number}"), "1", value!({})).await;
    }
    let pods = cluster.until("all placed", |pods| placed(pods) == 6).await;
    let mut counts = by_node(&pods);
    counts.sort_unstable();
    assert_eq!(counts, [2, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_spread_over_zones() {
    let cluster = Cluster::start().await;
    for (node, zone) in [("n1", "a"), ("n2", "b"), ("n3", "c"), ("n4", "c")] {
        cluster.node(node, zone, "8").await;
    }
    let _scheduler = cluster.schedule("");
    for number in 0..9 {
        let spread = value!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]);
        cluster.pod(&format!("p{number}"), "100m", value!({"topologySpreadConstraints": spread})).await;
    }
    let pods = cluster.until("all placed", |pods| placed(pods) == 9).await;
    let zone = |node: &str| usize::from(node == "n2") + 2 * usize::from(node == "n3" || node == "n4");
    let mut zones = [0; 3];
    for entry in pods.iter() {
        zones[zone(&node_of(&pods, &entry.key.name))] += 1;
    }
    assert_eq!(zones, [3, 3, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_fits_nowhere_says_why_and_a_new_node_wakes_only_those_that_it_can_take() {
    let mut cluster = Cluster::start().await;
    cluster.node("n1", "a", "1").await;
    let scheduler = cluster.schedule("");
    cluster.pod("small", "3", value!({})).await;
    cluster.pod("large", "30", value!({})).await;
    let pods = cluster.until("both wait", |pods| waits(pods, "small") && waits(pods, "large")).await;
    let expect = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are \
                  available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(condition(&pods, "small").unwrap().str_at(&["message"]), Some(expect));
    let told = |events: &Objects, reason: &str, name: &str| {
        events.iter().any(|entry| {
            entry.value.str_at(&["reason"]) == Some(reason)
                && entry.value.str_at(&["regarding", "name"]) == Some(name)
                && entry.value.str_at(&["reportingController"]) == Some("default-scheduler")
        })
    };
    cluster.until_of(&EVENTS, "FailedScheduling is told", |all| told(all, "FailedScheduling", "large")).await;
    cluster.node("n2", "a", "4").await;
    cluster.until("small is placed", |pods| node_of(pods, "small") == "n2").await;
    cluster.until_of(&EVENTS, "Scheduled is told", |all| told(all, "Scheduled", "small")).await;
    let text = scheduler.metrics.text();
    assert!(text.contains("attempts_total{result=\"unschedulable\"} 2\n"), "large was not tried again:\n{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn room_is_made_where_no_budget_is_violated() {
    let mut cluster = Cluster::start().await;
    for node in ["n1", "n2"] {
        cluster.node(node, "a", "4").await;
    }
    let budget = value!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"pod": "guarded"}}}});
    cluster.create(&kinds::POD_DISRUPTION_BUDGETS, budget).await;
    let class = value!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
        "value": 1000});
    cluster.create(&kinds::PRIORITY_CLASSES, class).await;
    let _scheduler = cluster.schedule("");
    for name in ["guarded", "free"] {
        cluster.pod(name, "3", value!({})).await;
    }
    let pods = cluster.until("both placed", |pods| placed(pods) == 2).await;
    let node = node_of(&pods, "free");
    cluster.pod("high", "3", value!({"priorityClassName": "high"})).await;
    let pods = cluster.until("the high one is placed", |pods| node_of(pods, "high") == node).await;
    assert!(pods.get(&Key::new("default", "free")).is_none());
    assert!(!node_of(&pods, "guarded").is_empty());
    let note = |event: &Value| event.str_at(&["note"]).unwrap_or_default().ends_with(&format!("on node {node}"));
    cluster
        .until_of(&EVENTS, "Preempted is told", |all| {
            all.iter().any(|entry| entry.value.str_at(&["reason"]) == Some("Preempted") && note(&entry.value))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_victim_that_takes_its_time_is_waited_for_and_its_room_is_kept() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "a", "4").await;
    let class = value!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
        "value": 1000});
    cluster.create(&kinds::PRIORITY_CLASSES, class).await;
    let _scheduler = cluster.schedule("");
    cluster.pod("slow", "3", value!({"terminationGracePeriodSeconds": 600})).await;
    cluster.until("the slow one is placed", |pods| node_of(pods, "slow") == "n1").await;
    cluster.pod("high", "3", value!({"priorityClassName": "high"})).await;
    let text = |pods: &Objects, name: &str, path: &[&str]| {
        let pod = pods.get(&Key::new("default", name));
        pod.and_then(|pod| pod.str_at(path)).unwrap_or_default().to_owned()
    };
    let going = |pods: &Objects| !text(pods, "slow", &["metadata", "deletionTimestamp"]).is_empty();
    let nominated = |pods: &Objects| text(pods, "high", &["status", "nominatedNodeName"]) == "n1";
    let pods = cluster.until("room is made", |pods| going(pods) && nominated(pods)).await;
    assert_eq!(node_of(&pods, "high"), "", "not before the victim is gone");
    let disrupted = pods.get(&Key::new("default", "slow")).unwrap().at(&["status", "conditions"]);
    let target = |it: &Value| it.str_at(&["type"]) == Some("DisruptionTarget");
    let reason = disrupted.and_then(Value::as_array).unwrap().iter().find(|it| target(it)).unwrap();
    assert_eq!(reason.str_at(&["reason"]), Some("PreemptionByScheduler"));
    cluster.pod("small", "1", value!({})).await;
    cluster.until("the small one waits", |pods| waits(pods, "small")).await;
    // What the kubelet does once the pod has ended.
    let now = client::DeleteOptions { grace_seconds: Some(0), ..client::DeleteOptions::default() };
    cluster.admin().delete(&Target::named(&kinds::PODS, "default", "slow"), &now).await.unwrap();
    cluster.until("both are placed", |pods| node_of(pods, "high") == "n1" && node_of(pods, "small") == "n1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_keeps_a_pod_until_it_is_taken_away() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "a", "4").await;
    let _scheduler = cluster.schedule("");
    cluster.pod("gated", "1", value!({"schedulingGates": [{"name": "example.com/g"}]})).await;
    cluster.pod("open", "1", value!({})).await;
    let pods = cluster.until("the open one is placed", |pods| !node_of(pods, "open").is_empty()).await;
    assert_eq!(node_of(&pods, "gated"), "");
    let target = Target::named(&kinds::PODS, "default", "gated");
    let patch = Patch::Merge(value!({"spec": {"schedulingGates": null}}));
    cluster.admin().patch(&target, &patch, &WriteOptions::default()).await.unwrap();
    cluster.until("the gated one is placed", |pods| node_of(pods, "gated") == "n1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_scheduler_places_the_pods_that_name_it() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "a", "8").await;
    let _first = cluster.schedule("profiles: [{schedulerName: default-scheduler}, {schedulerName: third}]\n");
    let second = cluster.schedule("profiles: [{schedulerName: second}]\n");
    for name in ["default-scheduler", "second", "third", "nobody"] {
        cluster.pod(name, "1", value!({"schedulerName": name})).await;
    }
    let pods = cluster.until("three are placed", |pods| placed(pods) == 3).await;
    assert_eq!(node_of(&pods, "nobody"), "");
    assert!(second.metrics.text().contains("attempts_total{result=\"scheduled\"} 1\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_gets_its_volume_where_its_pod_goes() {
    let mut cluster = Cluster::start().await;
    for node in ["n1", "n2"] {
        cluster.node(node, "a", "4").await;
    }
    let class = value!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.create(&kinds::STORAGE_CLASSES, class).await;
    let term = value!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}]});
    let volume = value!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
        "spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "local": {"path": "/disk"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}});
    cluster.create(&kinds::PERSISTENT_VOLUMES, volume).await;
    let available = Patch::Merge(value!({"status": {"phase": "Available"}}));
    let target = Target::object(&kinds::PERSISTENT_VOLUMES, &Key::cluster("pv")).subresource("status");
    cluster.admin().patch(&target, &available, &WriteOptions::default()).await.unwrap();
    let claim = value!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.create(&kinds::PERSISTENT_VOLUME_CLAIMS, claim).await;
    let _scheduler = cluster.schedule("");
    let volumes = value!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    cluster.pod("p", "1", value!({"volumes": volumes})).await;
    let claimed = |all: &Objects| {
        all.get(&Key::cluster("pv")).and_then(|pv| pv.str_at(&["spec", "claimRef", "name"])) == Some("c")
    };
    cluster.until_of(&kinds::PERSISTENT_VOLUMES, "the volume is promised", claimed).await;
    let pods = cluster.admin().list(&Target::all(&kinds::PODS), &ListOptions::default()).await.unwrap();
    assert_eq!(pods.items[0].str_at(&["spec", "nodeName"]).unwrap_or_default(), "", "not before the claim is bound");
    // What the volume controller does.
    let bound = value!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "pv"}});
    let target = Target::named(&kinds::PERSISTENT_VOLUME_CLAIMS, "default", "c");
    cluster.admin().patch(&target, &Patch::Merge(bound), &WriteOptions::default()).await.unwrap();
    cluster.until("placed", |pods| node_of(pods, "p") == "n2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_its_volume_as_long_as_the_profile_says() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "a", "4").await;
    let class = value!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "slow"},
        "provisioner": "slow.example.com", "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.create(&kinds::STORAGE_CLASSES, class).await;
    let claim = value!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"storageClassName": "slow", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.create(&kinds::PERSISTENT_VOLUME_CLAIMS, claim).await;
    let _scheduler =
        cluster.schedule("profiles: [{pluginConfig: [{name: VolumeBinding, args: {bindTimeoutSeconds: 1}}]}]\n");
    let volumes = value!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    cluster.pod("p", "1", value!({"volumes": volumes})).await;
    let told = |pods: &Objects| condition(pods, "p").and_then(|it| it.str_at(&["message"])).map(str::to_owned);
    let pods = cluster.until("it is told", |pods| told(pods).is_some()).await;
    let expect = "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";
    assert_eq!(told(&pods).as_deref(), Some(expect));
}
