//! Workload tests on hollow nodes: real store, real API server, all controllers, no containers.

mod cluster;
mod finalizers;

use std::sync::{Arc, Mutex};

use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::{Key, Resource, Value, value};
use controller::{Objects, kinds};
use controllers::registry::Setups;
use hollow_node::node::Size;
use hollow_node::{Nodes, Settings};
use testkit::{Cluster, manage, manage_with};
use tokio::task::JoinSet;

struct Fixture {
    cluster: Cluster,
    _nodes: Nodes,
    _manager: JoinSet<()>,
}

/// Starts a cluster with hollow nodes and controllers.
async fn fixture(nodes: u32, watched: &[&Resource]) -> Fixture {
    fixture_with(nodes, watched, &Setups::default()).await
}

/// Like [`fixture`], with the configuration of controllers.
async fn fixture_with(nodes: u32, watched: &[&Resource], setups: &Setups) -> Fixture {
    let cluster = Cluster::start(watched).await;
    let nodes = hollow_nodes(&cluster, nodes, "n").await;
    let manager = manage_with(&cluster.admin(), setups);
    Fixture { cluster, _nodes: nodes, _manager: manager }
}

async fn hollow_nodes(cluster: &Cluster, nodes: u32, prefix: &str) -> Nodes {
    let settings = Settings { nodes, prefix: prefix.to_owned(), size: Size::default() };
    Nodes::start(cluster.admin(), settings).await.expect("nodes are registered")
}

fn template(app: &str, image: &str) -> Value {
    value!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn workload(kind: &str, name: &str, spec: Value) -> Value {
    let base = value!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": (template(name, "v1"))}});
    apimachinery::patch::merge::apply(base, value!({"spec": spec}))
}

fn number(object: &Value, field: &str) -> i64 {
    object.int_at(&["status", field]).unwrap_or(0)
}

fn is_seen(object: &Value) -> bool {
    number(object, "observedGeneration") == Meta::of(object).generation()
}

async fn wait_for_object(fixture: &Fixture, resource: &Resource, name: &str, is: impl Fn(&Value) -> bool) -> Value {
    let key = Key::new("default", name);
    let all = fixture.cluster.until(resource, "settled", |all| all.get(&key).is_some_and(&is)).await;
    all.get(&key).expect("it was there").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_is_rolled_out_scaled_and_rolled_back() {
    let fixture = fixture(4, &[&kinds::DEPLOYMENTS, &kinds::PODS]).await;
    let cluster = &fixture.cluster;
    cluster.create(&kinds::DEPLOYMENTS, &workload("Deployment", "web", value!({"replicas": 4}))).await;
    let done = |replicas: i64| {
        move |it: &Value| {
            is_seen(it)
                && ["replicas", "updatedReplicas", "availableReplicas"]
                    .iter()
                    .all(|field| number(it, field) == replicas)
        }
    };
    wait_for_object(&fixture, &kinds::DEPLOYMENTS, "web", done(4)).await;
    let pods = cluster.until(&kinds::PODS, "made", |pods| pods.len() == 4).await;
    let is_placed = |pod: &Value| pod.str_at(&["spec", "nodeName"]).is_some_and(|node| node.starts_with('n'));
    let has_address =
        |pod: &Value| pod.str_at(&["status", "podIP"]).is_some_and(|address| address.starts_with("10.0."));
    assert!(pods.iter().all(|pod| is_placed(&pod.value) && has_address(&pod.value)));
    for (image, replicas) in [("v2", 4), ("v2", 7), ("v1", 7), ("v1", 2)] {
        let generation = cluster
            .patch(&kinds::DEPLOYMENTS, "web", value!({"spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}))
            .await;
        let generation = Meta::of(&generation).generation();
        let is = done(replicas);
        wait_for_object(&fixture, &kinds::DEPLOYMENTS, "web", |it| Meta::of(it).generation() == generation && is(it))
            .await;
        let of_image = |pod: &Value| pod["spec"]["containers"][0]["image"] == image.into();
        let count = usize::try_from(replicas).expect("few");
        cluster
            .until(&kinds::PODS, "of the new image", |pods| {
                pods.len() == count && pods.iter().all(|pod| of_image(&pod.value))
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stateful_set_creates_pods_in_order_and_updates_in_reverse_order() {
    let fixture = fixture(2, &[&kinds::STATEFUL_SETS, &kinds::PODS]).await;
    let cluster = &fixture.cluster;
    // Records each pod when first seen, with the pods that were ready then.
    let creations: Arc<Mutex<Vec<String>>> = Arc::default();
    let (recorded, pods) = (Arc::clone(&creations), cluster.reader(&kinds::PODS).clone());
    let notices = client::cache::ChangeQueue::new(1000);
    cluster.reader(&kinds::PODS).subscribe(&notices, move |change, _| {
        if let (None, Some(pod)) = (change.old, change.new) {
            let ready = pods.snapshot().objects.iter().filter(|one| Pod(&one.value).is_ready()).count();
            recorded.lock().expect("no panic").push(format!("{} after {ready}", Meta::of(pod).name()));
        }
    });
    let set = workload("StatefulSet", "db", value!({"replicas": 3, "serviceName": "db"}));
    cluster.create(&kinds::STATEFUL_SETS, &set).await;
    let done = |it: &Value| is_seen(it) && number(it, "availableReplicas") == 3 && number(it, "updatedReplicas") == 3;
    let first = wait_for_object(&fixture, &kinds::STATEFUL_SETS, "db", done).await;
    assert_eq!(*creations.lock().expect("no panic"), ["db-0 after 0", "db-1 after 1", "db-2 after 2"]);
    cluster
        .patch(
            &kinds::STATEFUL_SETS,
            "db",
            value!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "v2"}]}}}}),
        )
        .await;
    let old = first["status"]["currentRevision"].clone();
    let second =
        wait_for_object(&fixture, &kinds::STATEFUL_SETS, "db", |it| done(it) && it["status"]["currentRevision"] != old)
            .await;
    assert_eq!(second["status"]["currentRevision"], second["status"]["updateRevision"]);
    let recorded = creations.lock().expect("no panic")[3..].join(", ");
    assert_eq!(recorded, "db-2 after 2, db-1 after 2, db-0 after 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_complete_fail_and_are_counted_once() {
    let fixture = fixture(2, &[&kinds::JOBS, &kinds::PODS]).await;
    let job = |name: &str, image: &str, spec: Value| {
        let template = apimachinery::patch::merge::apply(
            template(name, image),
            value!({"spec": {"restartPolicy": "Never"}, "metadata": {"labels": null}}),
        );
        let base = value!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"}, "spec": {"template": template}});
        apimachinery::patch::merge::apply(base, value!({"spec": spec}))
    };
    let cluster = &fixture.cluster;
    cluster.create(&kinds::JOBS, &job("many", "hollow/succeed", value!({"completions": 12, "parallelism": 5}))).await;
    cluster.create(&kinds::JOBS, &job("bad", "hollow/fail:3", value!({"backoffLimit": 0}))).await;
    cluster
        .create(
            &kinds::JOBS,
            &job("each", "hollow/succeed", value!({"completionMode": "Indexed", "completions": 4, "parallelism": 4})),
        )
        .await;
    let is = |kind: &'static str| move |it: &Value| controllers::condition::find(it, kind).is_some();
    let many = wait_for_object(&fixture, &kinds::JOBS, "many", is("Complete")).await;
    assert_eq!((number(&many, "succeeded"), number(&many, "failed")), (12, 0));
    let bad = wait_for_object(&fixture, &kinds::JOBS, "bad", is("Failed")).await;
    assert_eq!((number(&bad, "succeeded"), number(&bad, "failed")), (0, 1));
    let each = wait_for_object(&fixture, &kinds::JOBS, "each", is("Complete")).await;
    assert_eq!(each["status"]["completedIndexes"], "0-3".into());
    let is_free = |pod: &Value| Meta::of(pod).finalizers().next().is_none();
    let let_go = |pods: &Objects| pods.len() >= 12 + 1 + 4 && pods.iter().all(|pod| is_free(&pod.value));
    let pods = cluster.until(&kinds::PODS, "let go", let_go).await;
    assert_eq!(pods.len(), 12 + 1 + 4, "no object was created twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn cron_job_creates_jobs_and_daemon_set_runs_on_every_node() {
    let fixture = fixture(3, &[&kinds::CRON_JOBS, &kinds::JOBS, &kinds::DAEMON_SETS]).await;
    let cluster = &fixture.cluster;
    let pod = value!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "hollow/succeed"}]}});
    let cron = value!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick", "namespace": "default"},
        "spec": {"schedule": "@every 1s", "jobTemplate": {"spec": {"template": pod}}}});
    cluster.create(&kinds::CRON_JOBS, &cron).await;
    cluster.create(&kinds::DAEMON_SETS, &workload("DaemonSet", "ds", value!({}))).await;
    let ds =
        wait_for_object(&fixture, &kinds::DAEMON_SETS, "ds", |it| is_seen(it) && number(it, "numberAvailable") == 3)
            .await;
    assert_eq!(number(&ds, "desiredNumberScheduled"), 3);
    let tick =
        wait_for_object(&fixture, &kinds::CRON_JOBS, "tick", |it| it.at(&["status", "lastSuccessfulTime"]).is_some())
            .await;
    assert!(tick["status"].get("lastScheduleTime").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_status_contains_expression_warnings() {
    let policies = &kinds::VALIDATING_ADMISSION_POLICIES;
    let cluster = Cluster::start(&[policies]).await;
    let _manager = manage(&cluster.admin());
    let policy = value!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["deployments"]}]},
            "validations": [{"expression": "object.replicas > 1"}, {"expression": "object.spec.replicas > 1"}]}});
    let target = client::Target::all(policies);
    cluster.admin().create(&target, &policy, &client::WriteOptions::default()).await.expect("it is sound");
    let key = Key::cluster("p");
    let all = cluster.until(policies, "looked at", |all| all.get(&key).is_some_and(is_seen)).await;
    let status = all.get(&key).expect("it was there")["status"].clone();
    let warning = "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas > 1\n | ......^\n";
    let expected = value!([{"fieldRef": "spec.validations[0].expression", "warning": warning}]);
    assert_eq!(status["typeChecking"]["expressionWarnings"], expected);
}
