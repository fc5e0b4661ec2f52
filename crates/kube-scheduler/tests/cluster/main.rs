//! Tests of the scheduler against the real API server and store in one process.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod cluster;
mod devices;
mod extenders;
mod hollow_nodes;
mod transcripts;

use apimachinery::{Key, Value, value};
use client::{ListOptions, Patch, Target, WriteOptions};
use controller::{Objects, kinds};

use cluster::{Cluster, node_of};

fn condition<'a>(pods: &'a Objects, name: &str) -> Option<&'a Value> {
    let pod = pods.get(&Key::new("default", name))?;
    let conditions = pod.at(&["status", "conditions"])?.as_array()?;
    conditions.iter().find(|it| it.str_at(&["type"]) == Some("PodScheduled"))
}

/// Returns `nominatedNodeName` of a pod; empty if not set.
fn nominated_node(pods: &Objects, name: &str) -> String {
    let pod = pods.get(&Key::new("default", name));
    pod.and_then(|pod| pod.str_at(&["status", "nominatedNodeName"])).unwrap_or_default().to_owned()
}

fn waits(pods: &Objects, name: &str) -> bool {
    condition(pods, name).and_then(|it| it.str_at(&["reason"])) == Some("Unschedulable")
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_victim_is_awaited_and_its_resources_stay_reserved() {
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
    // As the kubelet does once the pod has terminated.
    let now = client::DeleteOptions { grace_seconds: Some(0), ..client::DeleteOptions::default() };
    cluster.admin().delete(&Target::named(&kinds::PODS, "default", "slow"), &now).await.unwrap();
    cluster.until("both are placed", |pods| node_of(pods, "high") == "n1" && node_of(pods, "small") == "n1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_bound_to_a_volume_on_the_node_of_its_pod() {
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
    assert_eq!(pods.items[0].text_at(&["spec", "nodeName"]), "", "not before the claim is bound");
    assert_eq!(pods.items[0].str_at(&["status", "nominatedNodeName"]), Some("n2"), "it is known where it will go");
    // As the PersistentVolume controller does.
    let bound = value!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "pv"}});
    let target = Target::named(&kinds::PERSISTENT_VOLUME_CLAIMS, "default", "c");
    cluster.admin().patch(&target, &Patch::Merge(bound), &WriteOptions::default()).await.unwrap();
    let pods = cluster.until("placed", |pods| node_of(pods, "p") == "n2").await;
    assert_eq!(nominated_node(&pods, "p"), "", "it waits for none any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn volume_binding_timeout_of_the_profile_applies() {
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
    let message = |pods: &Objects| condition(pods, "p").and_then(|it| it.str_at(&["message"])).map(str::to_owned);
    let given_up = |pods: &Objects| message(pods).is_some() && nominated_node(pods, "p").is_empty();
    let pods = cluster.until("it is told, and no node is expected any more", given_up).await;
    let expect = "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";
    assert_eq!(message(&pods).as_deref(), Some(expect));
}
