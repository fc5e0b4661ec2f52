use api::resources::{PODS, REPLICA_SETS};
use api::view::Pod;
use apimachinery::{Resource, value};
use controller::testing::{FakeCluster, WriteError, check_properties, kubelet, run_until_stable};
use controller::{Rejection, decide};
use proptest::prelude::*;

use super::*;

fn set(name: &str, replicas: i64) -> Value {
    value!({"metadata": {"namespace": "a", "name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

fn bare_pod(name: &str, app: &str) -> Value {
    value!({"metadata": {"namespace": "a", "name": name, "labels": {"app": app}}, "spec": {}})
}

fn new_cluster() -> FakeCluster {
    FakeCluster::new(Time::from_unix(1_700_000_000, 0))
}

fn key(name: &str) -> Key {
    Key::new("a", name)
}

fn plan(cluster: &FakeCluster, name: &str) -> String {
    decide::<ReplicaSet>(&cluster.cache::<ReplicaSet>(), &(), &key(name), cluster.now).to_string()
}

fn resize(cluster: &mut FakeCluster, name: &str, replicas: i64) {
    cluster.change(&kinds::REPLICA_SETS, &key(name), |set| {
        set.get_mut("spec").unwrap().as_object_mut().unwrap().insert("replicas", replicas);
    });
}

fn status(cluster: &FakeCluster, name: &str) -> String {
    cluster.get(&kinds::REPLICA_SETS, &key(name)).unwrap()["status"].to_string()
}

fn change(cluster: &mut FakeCluster, resource: &Resource, name: &str, change: Value) {
    cluster.change(resource, &key(name), |object| {
        *object = apimachinery::patch::merge::apply(object.take(), change);
    });
}

#[test]
fn replicaset_converges_to_its_replicas_and_reports_them() {
    let mut cluster = new_cluster();
    cluster.add(&kinds::REPLICA_SETS, set("web", 3));
    run_until_stable::<ReplicaSet>(&mut cluster, kubelet);
    assert_eq!(cluster.of(PODS).len(), 3);
    let expect = r#"{"availableReplicas":3,"fullyLabeledReplicas":3,"observedGeneration":1,"readyReplicas":3,"replicas":3,"terminatingReplicas":0}"#;
    assert_eq!(status(&cluster, "web"), expect);
    resize(&mut cluster, "web", 1);
    run_until_stable::<ReplicaSet>(&mut cluster, kubelet);
    assert_eq!(cluster.of(PODS).len(), 1);
    resize(&mut cluster, "web", 0);
    run_until_stable::<ReplicaSet>(&mut cluster, kubelet);
    assert_eq!(status(&cluster, "web"), r#"{"observedGeneration":3,"replicas":0,"terminatingReplicas":0}"#);
}

#[test]
fn pods_are_created_from_the_template() {
    let mut cluster = new_cluster();
    cluster.add(&kinds::REPLICA_SETS, set("web", 1));
    run_until_stable::<ReplicaSet>(&mut cluster, |_| false);
    let pods = cluster.of(PODS);
    let pod = &pods.iter().next().unwrap().value;
    let meta = Meta::of(pod);
    assert_eq!((meta.generate_name(), meta.label("app")), ("web-", Some("web")));
    assert_eq!(meta.name().len(), "web-".len() + 5);
    let owner = meta.controller().unwrap();
    assert_eq!((owner.api_version(), owner.kind(), owner.name()), ("apps/v1", "ReplicaSet", "web"));
    assert!(owner.blocks_owner_deletion());
    assert_eq!(pod["spec"]["containers"][0]["image"], "i".into());
}

#[test]
fn matching_orphans_are_adopted_and_other_pods_released() {
    let mut cluster = new_cluster();
    cluster.add(&kinds::PODS, bare_pod("x", "web"));
    cluster.add(&kinds::PODS, bare_pod("y", "other"));
    cluster.add(&kinds::REPLICA_SETS, set("web", 2));
    assert!(plan(&cluster, "web").starts_with("patch pods a/x "), "{}", plan(&cluster, "web"));
    run_until_stable::<ReplicaSet>(&mut cluster, kubelet);
    assert_eq!(cluster.of(PODS).len(), 3, "one adopted, one made, one not ours");
    assert!(Meta::of(cluster.get(&kinds::PODS, &key("y")).unwrap()).controller().is_none());
    change(&mut cluster, &kinds::PODS, "x", value!({"metadata": {"labels": {"app": "debug"}}}));
    run_until_stable::<ReplicaSet>(&mut cluster, kubelet);
    assert!(Meta::of(cluster.get(&kinds::PODS, &key("x")).unwrap()).controller().is_none());
    assert_eq!(cluster.of(PODS).len(), 4, "a released pod is replaced");
}

#[test]
fn terminated_and_terminating_pods_are_replaced() {
    let mut cluster = new_cluster();
    cluster.add(&kinds::REPLICA_SETS, set("web", 2));
    run_until_stable::<ReplicaSet>(&mut cluster, kubelet);
    let names: Vec<Key> = cluster.of(PODS).iter().map(|entry| entry.key.clone()).collect();
    change(&mut cluster, &kinds::PODS, &names[0].name, value!({"status": {"phase": "Failed"}}));
    cluster.delete(&kinds::PODS, &names[1], None, None);
    let planned = plan(&cluster, "web");
    assert_eq!(planned.matches("create pods").count(), 2, "{planned}");
    run_until_stable::<ReplicaSet>(&mut cluster, |_| false);
    assert!(status(&cluster, "web").contains(r#""replicas":2,"terminatingReplicas":1"#), "{}", status(&cluster, "web"));
}

#[test]
fn low_deletion_cost_goes_first_and_a_deleted_replicaset_is_idle() {
    let mut cluster = new_cluster();
    cluster.add(&kinds::REPLICA_SETS, set("web", 3));
    run_until_stable::<ReplicaSet>(&mut cluster, kubelet);
    let cheap = cluster.of(PODS).iter().nth(1).unwrap().key.clone();
    let cost = value!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}});
    change(&mut cluster, &kinds::PODS, &cheap.name, cost);
    resize(&mut cluster, "web", 2);
    assert!(plan(&cluster, "web").starts_with(&format!("delete pods {cheap}\n")), "{}", plan(&cluster, "web"));
    change(&mut cluster, &kinds::REPLICA_SETS, "web", value!({"metadata": {"finalizers": ["x"]}}));
    cluster.delete(&kinds::REPLICA_SETS, &key("web"), None, None);
    assert!(!plan(&cluster, "web").contains("pods"), "{}", plan(&cluster, "web"));
}

#[test]
fn pod_becomes_available_after_min_ready_seconds() {
    let mut cluster = new_cluster();
    let mut set = set("web", 1);
    set.get_mut("spec").unwrap().as_object_mut().unwrap().insert("minReadySeconds", 30);
    cluster.add(&kinds::REPLICA_SETS, set);
    for _ in 0..3 {
        let plan = decide::<ReplicaSet>(&cluster.cache::<ReplicaSet>(), &(), &key("web"), cluster.now);
        plan.actions.iter().for_each(|action| cluster.execute(action).unwrap());
        kubelet(&mut cluster);
    }
    assert!(status(&cluster, "web").contains(r#""readyReplicas":1"#) && !status(&cluster, "web").contains("available"));
    let start = cluster.now;
    run_until_stable::<ReplicaSet>(&mut cluster, kubelet);
    assert_eq!(cluster.now.since(start).whole_seconds(), 30);
    assert!(status(&cluster, "web").contains(r#""availableReplicas":1"#));
}

#[test]
fn rejected_pod_sets_replica_failure_until_it_succeeds() {
    let mut cluster = new_cluster();
    cluster.add(&kinds::REPLICA_SETS, set("web", 2));
    let rejection = Rejection {
        resource: kinds::PODS.clone(),
        subresource: "",
        create: true,
        reason: "Forbidden".into(),
        message: "exceeded quota".into(),
    };
    let cache = cluster.cache::<ReplicaSet>().with_rejection(Some(rejection));
    let plan = decide::<ReplicaSet>(&cache, &(), &key("web"), cluster.now);
    drop(cache);
    let update = plan.actions.last().unwrap().clone();
    assert_eq!(update.to_string(), "update replicasets.apps/status a/web");
    cluster.execute(&update).unwrap();
    let failing = cluster.get(&kinds::REPLICA_SETS, &key("web")).unwrap()["status"]["conditions"][0].clone();
    assert_eq!(
        (failing["reason"].as_str(), failing["message"].as_str()),
        (Some("FailedCreate"), Some("exceeded quota"))
    );
    run_until_stable::<ReplicaSet>(&mut cluster, kubelet);
    assert!(!status(&cluster, "web").contains("ReplicaFailure"));
}

#[test]
fn pod_names_are_deterministic() {
    let mut cluster = new_cluster();
    cluster.add(&kinds::REPLICA_SETS, set("web", 3));
    let plan = decide::<ReplicaSet>(&cluster.cache::<ReplicaSet>(), &(), &key("web"), cluster.now);
    let creates: Vec<&Action> = plan.actions.iter().filter(|action| matches!(action, Action::Create { .. })).collect();
    let mut after = cluster.clone();
    creates.iter().for_each(|action| after.execute(action).unwrap());
    for action in &creates {
        assert_eq!(
            after.execute(action),
            Err(WriteError::AlreadyExists),
            "the next leader, before it has seen anything"
        );
    }
    run_until_stable::<ReplicaSet>(&mut after, kubelet);
    let deleted_pod = after.of(PODS).iter().next().unwrap().key.clone();
    after.remove(&kinds::PODS, &deleted_pod);
    run_until_stable::<ReplicaSet>(&mut after, kubelet);
    assert!(after.get(&kinds::PODS, &deleted_pod).is_none(), "a pod does not come back under an old name");
}

#[test]
fn properties_hold_in_example_clusters() {
    let mut cluster = new_cluster();
    cluster.add(&kinds::PODS, bare_pod("x", "web"));
    cluster.add(&kinds::PODS, bare_pod("y", "web"));
    cluster.add(&kinds::REPLICA_SETS, set("web", 4));
    cluster.add(&kinds::REPLICA_SETS, set("db", 3));
    check_properties::<ReplicaSet>(&cluster, kubelet);
    run_until_stable::<ReplicaSet>(&mut cluster, kubelet);
    resize(&mut cluster, "web", 1);
    resize(&mut cluster, "db", 6);
    check_properties::<ReplicaSet>(&cluster, kubelet);
}

prop_compose! {
    /// Generates ReplicaSets that were scaled before, and orphan pods of all kinds.
    fn arbitrary_cluster()(
        sizes in prop::collection::vec((0..5i64, 0..5i64, prop::sample::select(vec![0, 20])), 1..3),
        pods in prop::collection::vec((0..3usize, prop::sample::select(vec!["", "Pending", "Running", "Failed"]), any::<bool>()), 0..5),
    ) -> FakeCluster {
        let mut cluster = new_cluster();
        for (at, (before, _, min_ready)) in sizes.iter().enumerate() {
            let mut set = set(&format!("s{at}"), *before);
            set.get_mut("spec").unwrap().as_object_mut().unwrap().insert("minReadySeconds", *min_ready);
            cluster.add(&kinds::REPLICA_SETS, set);
        }
        run_until_stable::<ReplicaSet>(&mut cluster, kubelet);
        for (at, (app, phase, going)) in pods.iter().enumerate() {
            let mut pod = bare_pod(&format!("p{at}"), &format!("s{app}"));
            pod.as_object_mut().unwrap().insert("status", value!({"phase": (*phase)}));
            pod.get_mut("spec").unwrap().as_object_mut().unwrap().insert("nodeName", "n");
            let key = cluster.add(&kinds::PODS, pod);
            if *going {
                cluster.delete(&kinds::PODS, &key, None, None);
            }
        }
        for (at, (_, after, _)) in sizes.iter().enumerate() {
            resize(&mut cluster, &format!("s{at}"), *after);
        }
        cluster
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn properties_hold_in_generated_clusters(cluster in arbitrary_cluster()) {
        check_properties::<ReplicaSet>(&cluster, kubelet);
        let mut final_cluster = cluster;
        run_until_stable::<ReplicaSet>(&mut final_cluster, kubelet);
        for entry in final_cluster.of(REPLICA_SETS).iter() {
            let uid = Meta::of(&entry.value).uid();
            let pods = final_cluster.of(PODS);
            let alive = pods.by("controller", uid).filter(|pod| Pod(&pod.value).is_active()).count();
            prop_assert_eq!(alive as i64, replicas(&entry.value));
        }
    }
}
