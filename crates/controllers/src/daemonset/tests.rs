use apimachinery::meta::MetaMut;
use apimachinery::patch::merge;
use apimachinery::time::Duration;
use apimachinery::value;
use controller::decide;
use controller::testing::{FakeCluster, check_properties, settle};
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

fn world(set: Value, nodes: usize) -> FakeCluster {
    let mut world = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    for at in 1..=nodes {
        world.add(&kinds::NODES, node(&format!("n{at}"), value!({})));
    }
    world.add(&kinds::DAEMON_SETS, set);
    world
}

fn key() -> Key {
    Key::new("a", "ds")
}

fn change(world: &mut FakeCluster, change: Value) {
    world.change(&kinds::DAEMON_SETS, &key(), |set| *set = merge::apply(set.take(), change));
}

fn image(image: &str) -> Value {
    value!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

/// Binds each pod to its node and makes it run.
fn nodes(world: &mut FakeCluster) -> bool {
    let mut busy = false;
    for entry in world.of("pods").iter().filter(|entry| pod::node(&entry.value).is_empty()) {
        let target = make::target(&entry.value).to_owned();
        if world.get(&kinds::NODES, &Key::cluster(target.as_str())).is_none() {
            continue;
        }
        let now = world.now.to_string();
        world.change(&kinds::PODS, &entry.key, |pod| {
            let status = value!({"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": now}]});
            *pod = merge::apply(pod.take(), value!({"spec": {"nodeName": target}, "status": status}));
        });
        busy = true;
    }
    let going: Vec<Key> =
        world.of("pods").iter().filter(|one| Meta::of(&one.value).is_deleting()).map(|one| one.key.clone()).collect();
    for key in going {
        world.remove(&kinds::PODS, &key);
        busy = true;
    }
    busy
}

fn shown(world: &FakeCluster) -> Vec<String> {
    let show = |pod: &Value| format!("{} {}", pod::node(pod), pod["spec"]["containers"][0]["image"].as_str().unwrap());
    let mut all: Vec<String> = world.of("pods").iter().map(|entry| show(&entry.value)).collect();
    all.sort();
    all
}

fn status(world: &FakeCluster) -> String {
    world.get(&kinds::DAEMON_SETS, &key()).unwrap()["status"].to_string()
}

#[test]
fn every_eligible_node_has_one_pod() {
    let mut world = world(set(), 2);
    let taint = |effect: &str| value!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    world.add(&kinds::NODES, node("n3", taint("NoSchedule")));
    world.add(
        &kinds::NODES,
        node(
            "n4",
            value!({"spec": {"taints": [
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}}),
        ),
    );
    settle::<DaemonSet>(&mut world, nodes);
    assert_eq!(shown(&world), ["n1 v1", "n2 v1", "n4 v1"]);
    let expect = r#"{"currentNumberScheduled":3,"desiredNumberScheduled":3,"numberAvailable":3,"numberMisscheduled":0,"numberReady":3,"observedGeneration":1,"updatedNumberScheduled":3}"#;
    assert_eq!(status(&world), expect);
    world.change(&kinds::NODES, &Key::cluster("n1"), |node| *node = merge::apply(node.take(), taint("NoSchedule")));
    settle::<DaemonSet>(&mut world, nodes);
    assert_eq!(shown(&world).len(), 3, "who is there may stay");
    assert!(
        status(&world).contains(r#""desiredNumberScheduled":2"#)
            && status(&world).contains(r#""numberMisscheduled":1"#)
    );
    world.change(&kinds::NODES, &Key::cluster("n1"), |node| *node = merge::apply(node.take(), taint("NoExecute")));
    settle::<DaemonSet>(&mut world, nodes);
    assert_eq!(shown(&world), ["n2 v1", "n4 v1"]);
    change(&mut world, value!({"spec": {"template": {"spec": {"nodeSelector": {"on": "n2"}}}}}));
    settle::<DaemonSet>(&mut world, nodes);
    assert_eq!(shown(&world), ["n2 v1"]);
}

#[test]
fn daemon_pods_have_node_affinity_and_default_tolerations() {
    let mut set = set();
    MetaMut::of(&mut set).unwrap().set_annotation("deprecated.daemonset.template.generation", "7");
    let mut world = world(set, 1);
    settle::<DaemonSet>(&mut world, |_| false);
    let pods = world.of("pods");
    let pod = &pods.iter().next().unwrap().value;
    assert_eq!(make::target(pod), "n1");
    assert_eq!(pod::node(pod), "", "the scheduler places it");
    assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 6);
    assert_eq!(Meta::of(pod).label("pod-template-generation"), Some("7"));
    let revisions = world.of("controllerrevisions.apps");
    let revision = &revisions.iter().next().unwrap().value;
    assert_eq!(Meta::of(revision).label(make::HASH), Meta::of(pod).label(make::HASH));
    assert_eq!(Meta::of(revision).annotation("deprecated.daemonset.template.generation"), Some("7"));
}

#[test]
fn rolling_update_replaces_one_node_at_a_time() {
    let mut world = world(set(), 3);
    settle::<DaemonSet>(&mut world, nodes);
    world.log.clear();
    change(&mut world, image("v2"));
    settle::<DaemonSet>(&mut world, nodes);
    assert_eq!(shown(&world), ["n1 v2", "n2 v2", "n3 v2"]);
    let story: Vec<&str> = world.log.iter().filter(|line| line.contains(" pods ")).map(|line| &line[..6]).collect();
    assert_eq!(story, ["delete", "create", "delete", "create", "delete", "create"]);
    change(&mut world, merge::apply(image("v3"), value!({"spec": {"updateStrategy": {"type": "OnDelete"}}})));
    settle::<DaemonSet>(&mut world, nodes);
    assert_eq!(shown(&world), ["n1 v2", "n2 v2", "n3 v2"]);
    assert!(!status(&world).contains("updatedNumberScheduled"), "{}", status(&world));
}

#[test]
fn duplicate_revisions_are_merged_without_replacing_pods() {
    let mut world = world(set(), 2);
    settle::<DaemonSet>(&mut world, nodes);
    let mut twin = world.of("controllerrevisions.apps").iter().next().unwrap().value.clone();
    let mut meta = MetaMut::of(&mut twin).unwrap();
    meta.set("name", "ds-twin");
    meta.remove("uid");
    meta.set_label(make::HASH, "twin");
    twin.as_object_mut().unwrap().insert("revision", 2);
    world.add(&kinds::CONTROLLER_REVISIONS, twin);
    world.log.clear();
    settle::<DaemonSet>(&mut world, nodes);
    assert_eq!(world.of("controllerrevisions.apps").iter().count(), 1);
    let labels: Vec<_> =
        world.of("pods").iter().map(|pod| Meta::of(&pod.value).label(make::HASH).map(str::to_owned)).collect();
    assert_eq!(labels, [Some("twin".to_owned()), Some("twin".to_owned())]);
    assert!(!world.log.iter().any(|line| line.starts_with("delete pods")), "{:?}", world.log);
    assert!(status(&world).contains(r#""updatedNumberScheduled":2"#), "{}", status(&world));
}

#[test]
fn max_surge_creates_the_new_pod_first() {
    let surge = value!({"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}});
    let mut world = world(merge::apply(set(), surge), 2);
    settle::<DaemonSet>(&mut world, nodes);
    world.log.clear();
    change(&mut world, image("v2"));
    settle::<DaemonSet>(&mut world, nodes);
    assert_eq!(shown(&world), ["n1 v2", "n2 v2"]);
    let story: Vec<&str> = world.log.iter().filter(|line| line.contains(" pods ")).map(|line| &line[..6]).collect();
    assert_eq!(story, ["create", "delete", "create", "delete"]);
}

/// Runs the controller with its memory, one second at a time. Pods on `failing` nodes fail as soon as they run.
struct Trial {
    world: FakeCluster,
    memory: Option<Value>,
}

impl Trial {
    fn new(set: Value, count: usize) -> Self {
        let mut world = world(set, count);
        settle::<DaemonSet>(&mut world, nodes);
        Self { world, memory: None }
    }

    /// Returns the seconds at which pods were replaced.
    fn run(&mut self, failing: &[&str], seconds: u32) -> Vec<u32> {
        let mut replaced = Vec::new();
        for second in 0..seconds {
            fail(&mut self.world, failing);
            for _ in 0..4 {
                let plan = decide::<DaemonSet>(
                    &self.world.cache_for::<DaemonSet>(&key(), self.memory.as_ref()),
                    &key(),
                    self.world.now,
                );
                let deletes = plan.actions.iter().filter(|action| action.to_string().starts_with("delete pods"));
                replaced.extend(deletes.map(|_| second));
                for action in &plan.actions {
                    self.world.execute(action).unwrap();
                }
                self.memory = plan.remember;
                nodes(&mut self.world);
            }
            self.world.now = self.world.now.plus(Duration::from_seconds(1));
        }
        replaced
    }
}

fn fail(world: &mut FakeCluster, failing: &[&str]) {
    let running: Vec<Key> = world
        .of("pods")
        .iter()
        .filter(|entry| failing.contains(&pod::node(&entry.value)) && pod::phase(&entry.value) == "Running")
        .map(|entry| entry.key.clone())
        .collect();
    for key in running {
        let failed = value!({"status": {"phase": "Failed"}});
        world.change(&kinds::PODS, &key, |pod| *pod = merge::apply(pod.take(), failed));
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
            trial.world.log.iter().filter(|line| line.contains("FailedDaemonPod: Found failed daemon pod a/ds-"));
        assert_eq!(events.count(), expect.len(), "one event for each pod that is replaced");
        assert_eq!(trial.world.of("pods").iter().count(), 1);
    }
}

#[test]
fn the_back_off_of_failed_pods_is_counted_per_node() {
    let mut trial = Trial::new(set(), 2);
    assert_eq!(trial.run(&["n1"], 8), [0, 1, 3, 7]);
    assert_eq!(trial.run(&["n1", "n2"], 8), [0, 1, 3, 7, 7], "n2 starts with one second, n1 waits for eight");
}

#[test]
fn a_new_template_or_half_an_hour_without_failures_resets_the_back_off() {
    let mut trial = Trial::new(set(), 1);
    assert_eq!(trial.run(&["n1"], 8), [0, 1, 3, 7]);
    change(&mut trial.world, image("v2"));
    assert_eq!(trial.run(&[], 1).len(), 1, "the outdated pod is replaced");
    assert_eq!(trial.run(&["n1"], 4), [0, 1, 3]);
    trial.world.now = trial.world.now.plus(Duration::from_seconds(1801));
    assert_eq!(trial.run(&["n1"], 4), [0, 1, 3]);
}

prop_compose! {
    fn arbitrary_world()(
        count in 0..4usize, surge in 0..2i64, unavailable in 0..3i64, update in any::<bool>(), min_ready in prop::sample::select(vec![0, 10]),
        gone in prop::option::of(1..4usize), tainted in prop::option::of((1..4usize, any::<bool>())),
    ) -> FakeCluster {
        let rolling = value!({"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        let mut world = world(merge::apply(set(), value!({"spec": {"updateStrategy": rolling, "minReadySeconds": min_ready}})), count);
        settle::<DaemonSet>(&mut world, nodes);
        if let Some((at, evicts)) = tainted.filter(|(at, _)| *at <= count) {
            let effect = if evicts { "NoExecute" } else { "NoSchedule" };
            world.change(&kinds::NODES, &Key::cluster(format!("n{at}").as_str()), |node| {
                *node = merge::apply(node.take(), value!({"spec": {"taints": [{"key": "k", "effect": effect}]}}));
            });
        }
        if let Some(at) = gone.filter(|at| *at <= count) {
            world.remove(&kinds::NODES, &Key::cluster(format!("n{at}").as_str()));
        }
        if update {
            change(&mut world, image("v2"));
        }
        world
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn properties_hold_in_generated_clusters(world in arbitrary_world()) {
        check_properties::<DaemonSet>(&world, nodes);
    }
}
