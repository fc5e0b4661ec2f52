use api::resources::{CONTROLLER_REVISIONS, PODS};
use api::view::Pod;
use apimachinery::meta::MetaMut;
use apimachinery::patch::merge;
use apimachinery::time::Duration;
use apimachinery::value;
use controller::decide;
use controller::testing::{FakeCluster, check_properties, run_until_stable};
use proptest::prelude::*;

use super::*;

fn set() -> Value {
    value!({"metadata": {"namespace": "a", "name": "ds"},
        "spec": {"selector": {"matchLabels": {"app": "ds"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            "template": {"metadata": {"labels": {"app": "ds"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}}}})
}

fn node(name: &str, more: Value) -> Value {
    merge::apply(value!({"metadata": {"name": name, "labels": {"on": name}}, "spec": {}}), more)
}

fn new_cluster(set: Value, nodes: usize) -> FakeCluster {
    let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    for at in 1..=nodes {
        cluster.add(&kinds::NODES, node(&format!("n{at}"), value!({})));
    }
    cluster.add(&kinds::DAEMON_SETS, set);
    cluster
}

fn key() -> Key {
    Key::new("a", "ds")
}

fn change(cluster: &mut FakeCluster, change: Value) {
    cluster.change(&kinds::DAEMON_SETS, &key(), |set| *set = merge::apply(set.take(), change));
}

fn image(image: &str) -> Value {
    value!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

/// Binds each pod to its node and makes it run.
fn nodes(cluster: &mut FakeCluster) -> bool {
    let mut busy = false;
    for entry in cluster.of(PODS).iter().filter(|entry| Pod(&entry.value).node_name().is_empty()) {
        let target = make::target(&entry.value).to_owned();
        if cluster.get(&kinds::NODES, &Key::cluster(target.as_str())).is_none() {
            continue;
        }
        let now = cluster.now.to_string();
        cluster.change(&kinds::PODS, &entry.key, |pod| {
            let status = value!({"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": now}]});
            *pod = merge::apply(pod.take(), value!({"spec": {"nodeName": target}, "status": status}));
        });
        busy = true;
    }
    let going: Vec<Key> =
        cluster.of(PODS).iter().filter(|one| Meta::of(&one.value).is_deleting()).map(|one| one.key.clone()).collect();
    for key in going {
        cluster.remove(&kinds::PODS, &key);
        busy = true;
    }
    busy
}

fn render_pods(cluster: &FakeCluster) -> Vec<String> {
    let show =
        |pod: &Value| format!("{} {}", Pod(pod).node_name(), pod["spec"]["containers"][0]["image"].as_str().unwrap());
    let mut all: Vec<String> = cluster.of(PODS).iter().map(|entry| show(&entry.value)).collect();
    all.sort();
    all
}

fn status(cluster: &FakeCluster) -> String {
    cluster.get(&kinds::DAEMON_SETS, &key()).unwrap()["status"].to_string()
}

#[test]
fn every_eligible_node_has_one_pod() {
    let mut cluster = new_cluster(set(), 2);
    let taint = |effect: &str| value!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    cluster.add(&kinds::NODES, node("n3", taint("NoSchedule")));
    cluster.add(
        &kinds::NODES,
        node(
            "n4",
            value!({"spec": {"taints": [
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}}),
        ),
    );
    run_until_stable::<DaemonSet>(&mut cluster, nodes);
    assert_eq!(render_pods(&cluster), ["n1 v1", "n2 v1", "n4 v1"]);
    let expect = r#"{"currentNumberScheduled":3,"desiredNumberScheduled":3,"numberAvailable":3,"numberMisscheduled":0,"numberReady":3,"observedGeneration":1,"updatedNumberScheduled":3}"#;
    assert_eq!(status(&cluster), expect);
    cluster.change(&kinds::NODES, &Key::cluster("n1"), |node| *node = merge::apply(node.take(), taint("NoSchedule")));
    run_until_stable::<DaemonSet>(&mut cluster, nodes);
    assert_eq!(render_pods(&cluster).len(), 3, "a running pod is not evicted");
    assert!(
        status(&cluster).contains(r#""desiredNumberScheduled":2"#)
            && status(&cluster).contains(r#""numberMisscheduled":1"#)
    );
    cluster.change(&kinds::NODES, &Key::cluster("n1"), |node| *node = merge::apply(node.take(), taint("NoExecute")));
    run_until_stable::<DaemonSet>(&mut cluster, nodes);
    assert_eq!(render_pods(&cluster), ["n2 v1", "n4 v1"]);
    change(&mut cluster, value!({"spec": {"template": {"spec": {"nodeSelector": {"on": "n2"}}}}}));
    run_until_stable::<DaemonSet>(&mut cluster, nodes);
    assert_eq!(render_pods(&cluster), ["n2 v1"]);
}

#[test]
fn toleration_without_key_matches_taints_with_its_value() {
    let template = value!({"spec": {"template": {"spec": {"tolerations": [{"operator": "Equal", "value": "v"}]}}}});
    let mut cluster = new_cluster(merge::apply(set(), template), 1);
    for (name, value) in [("n2", "v"), ("n3", "w")] {
        let taint = value!({"key": "k", "value": value, "effect": "NoSchedule"});
        cluster.add(&kinds::NODES, node(name, value!({"spec": {"taints": [taint]}})));
    }
    run_until_stable::<DaemonSet>(&mut cluster, nodes);
    assert_eq!(render_pods(&cluster), ["n1 v1", "n2 v1"]);
}

#[test]
fn daemon_pods_have_node_affinity_and_default_tolerations() {
    let mut set = set();
    MetaMut::of(&mut set).unwrap().set_annotation("deprecated.daemonset.template.generation", "7");
    let mut cluster = new_cluster(set, 1);
    run_until_stable::<DaemonSet>(&mut cluster, |_| false);
    let pods = cluster.of(PODS);
    let pod = &pods.iter().next().unwrap().value;
    assert_eq!(make::target(pod), "n1");
    assert_eq!(Pod(pod).node_name(), "", "the scheduler places it");
    assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 6);
    assert_eq!(Meta::of(pod).label("pod-template-generation"), Some("7"));
    let revisions = cluster.of(CONTROLLER_REVISIONS);
    let revision = &revisions.iter().next().unwrap().value;
    assert_eq!(Meta::of(revision).label(make::HASH), Meta::of(pod).label(make::HASH));
    assert_eq!(Meta::of(revision).annotation("deprecated.daemonset.template.generation"), Some("7"));
}

#[test]
fn rolling_update_replaces_one_node_at_a_time() {
    let mut cluster = new_cluster(set(), 3);
    run_until_stable::<DaemonSet>(&mut cluster, nodes);
    cluster.log.clear();
    change(&mut cluster, image("v2"));
    run_until_stable::<DaemonSet>(&mut cluster, nodes);
    assert_eq!(render_pods(&cluster), ["n1 v2", "n2 v2", "n3 v2"]);
    let operations: Vec<&str> =
        cluster.log.iter().filter(|line| line.contains(" pods ")).map(|line| &line[..6]).collect();
    assert_eq!(operations, ["delete", "create", "delete", "create", "delete", "create"]);
    change(&mut cluster, merge::apply(image("v3"), value!({"spec": {"updateStrategy": {"type": "OnDelete"}}})));
    run_until_stable::<DaemonSet>(&mut cluster, nodes);
    assert_eq!(render_pods(&cluster), ["n1 v2", "n2 v2", "n3 v2"]);
    assert!(!status(&cluster).contains("updatedNumberScheduled"), "{}", status(&cluster));
}

#[test]
fn duplicate_revisions_are_merged_without_replacing_pods() {
    let mut cluster = new_cluster(set(), 2);
    run_until_stable::<DaemonSet>(&mut cluster, nodes);
    let mut twin = cluster.of(CONTROLLER_REVISIONS).iter().next().unwrap().value.clone();
    let mut meta = MetaMut::of(&mut twin).unwrap();
    meta.set("name", "ds-twin");
    meta.remove("uid");
    meta.set_label(make::HASH, "twin");
    twin.as_object_mut().unwrap().insert("revision", 2);
    cluster.add(&kinds::CONTROLLER_REVISIONS, twin);
    cluster.log.clear();
    run_until_stable::<DaemonSet>(&mut cluster, nodes);
    assert_eq!(cluster.of(CONTROLLER_REVISIONS).iter().count(), 1);
    let labels: Vec<_> =
        cluster.of(PODS).iter().map(|pod| Meta::of(&pod.value).label(make::HASH).map(str::to_owned)).collect();
    assert_eq!(labels, [Some("twin".to_owned()), Some("twin".to_owned())]);
    assert!(!cluster.log.iter().any(|line| line.starts_with("delete pods")), "{:?}", cluster.log);
    assert!(status(&cluster).contains(r#""updatedNumberScheduled":2"#), "{}", status(&cluster));
}

#[test]
fn max_surge_creates_the_new_pod_first() {
    let surge = value!({"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}});
    let mut cluster = new_cluster(merge::apply(set(), surge), 2);
    run_until_stable::<DaemonSet>(&mut cluster, nodes);
    cluster.log.clear();
    change(&mut cluster, image("v2"));
    run_until_stable::<DaemonSet>(&mut cluster, nodes);
    assert_eq!(render_pods(&cluster), ["n1 v2", "n2 v2"]);
    let operations: Vec<&str> =
        cluster.log.iter().filter(|line| line.contains(" pods ")).map(|line| &line[..6]).collect();
    assert_eq!(operations, ["create", "delete", "create", "delete"]);
}

/// Runs the controller with its memory, one second at a time. Pods on `failing` nodes fail as soon as they run.
struct Trial {
    cluster: FakeCluster,
    memory: Option<Value>,
}

impl Trial {
    fn new(set: Value, count: usize) -> Self {
        let mut cluster = new_cluster(set, count);
        run_until_stable::<DaemonSet>(&mut cluster, nodes);
        Self { cluster, memory: None }
    }

    /// Returns the seconds at which pods were replaced.
    fn run(&mut self, failing: &[&str], seconds: u32) -> Vec<u32> {
        let mut replaced = Vec::new();
        for second in 0..seconds {
            fail(&mut self.cluster, failing);
            for _ in 0..4 {
                let plan = decide::<DaemonSet>(
                    &self.cluster.cache_for::<DaemonSet>(&key(), self.memory.as_ref()),
                    &(),
                    &key(),
                    self.cluster.now,
                );
                let deletes = plan.actions.iter().filter(|action| action.to_string().starts_with("delete pods"));
                replaced.extend(deletes.map(|_| second));
                for action in &plan.actions {
                    self.cluster.execute(action).unwrap();
                }
                self.memory = plan.remember;
                nodes(&mut self.cluster);
            }
            self.cluster.now = self.cluster.now.plus(Duration::from_seconds(1));
        }
        replaced
    }
}

fn fail(cluster: &mut FakeCluster, failing: &[&str]) {
    let running: Vec<Key> = cluster
        .of(PODS)
        .iter()
        .filter(|entry| failing.contains(&Pod(&entry.value).node_name()) && Pod(&entry.value).phase() == "Running")
        .map(|entry| entry.key.clone())
        .collect();
    for key in running {
        let failed = value!({"status": {"phase": "Failed"}});
        cluster.change(&kinds::PODS, &key, |pod| *pod = merge::apply(pod.take(), failed));
    }
}

#[test]
fn failed_pods_are_replaced_with_a_back_off_that_doubles_to_fifteen_minutes() {
    for surge in [0, 1] {
        let rolling = value!({"rollingUpdate": {"maxSurge": surge, "maxUnavailable": (1 - surge)}});
        let mut trial = Trial::new(merge::apply(set(), value!({"spec": {"updateStrategy": rolling}})), 1);
        let expect = [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 1923, 2823];
        assert_eq!(trial.run(&["n1"], 3000), expect, "surge {surge}");
        let events =
            trial.cluster.log.iter().filter(|line| line.contains("FailedDaemonPod: Found failed daemon pod a/ds-"));
        assert_eq!(events.count(), expect.len(), "one event for each pod that is replaced");
        assert_eq!(trial.cluster.of(PODS).iter().count(), 1);
    }
}

#[test]
fn back_off_of_failed_pods_is_counted_per_node() {
    let mut trial = Trial::new(set(), 2);
    assert_eq!(trial.run(&["n1"], 8), [0, 1, 3, 7]);
    assert_eq!(trial.run(&["n1", "n2"], 8), [0, 1, 3, 7, 7], "n2 starts with one second, n1 waits for eight");
}

#[test]
fn new_template_or_half_an_hour_without_failures_resets_the_back_off() {
    let mut trial = Trial::new(set(), 1);
    assert_eq!(trial.run(&["n1"], 8), [0, 1, 3, 7]);
    change(&mut trial.cluster, image("v2"));
    assert_eq!(trial.run(&[], 1).len(), 1, "the outdated pod is replaced");
    assert_eq!(trial.run(&["n1"], 4), [0, 1, 3]);
    trial.cluster.now = trial.cluster.now.plus(Duration::from_seconds(1801));
    assert_eq!(trial.run(&["n1"], 4), [0, 1, 3]);
}

prop_compose! {
    fn arbitrary_cluster()(
        count in 0..4usize, surge in 0..2i64, unavailable in 0..3i64, update in any::<bool>(), min_ready in prop::sample::select(vec![0, 10]),
        removed_node in prop::option::of(1..4usize), tainted in prop::option::of((1..4usize, any::<bool>())),
    ) -> FakeCluster {
        let rolling = value!({"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        let mut cluster = new_cluster(merge::apply(set(), value!({"spec": {"updateStrategy": rolling, "minReadySeconds": min_ready}})), count);
        run_until_stable::<DaemonSet>(&mut cluster, nodes);
        if let Some((at, evicts)) = tainted.filter(|(at, _)| *at <= count) {
            let effect = if evicts { "NoExecute" } else { "NoSchedule" };
            cluster.change(&kinds::NODES, &Key::cluster(format!("n{at}").as_str()), |node| {
                *node = merge::apply(node.take(), value!({"spec": {"taints": [{"key": "k", "effect": effect}]}}));
            });
        }
        if let Some(at) = removed_node.filter(|at| *at <= count) {
            cluster.remove(&kinds::NODES, &Key::cluster(format!("n{at}").as_str()));
        }
        if update {
            change(&mut cluster, image("v2"));
        }
        cluster
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn properties_hold_in_generated_clusters(cluster in arbitrary_cluster()) {
        check_properties::<DaemonSet>(&cluster, nodes);
    }
}
