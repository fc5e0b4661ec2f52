use api::resources::{CONTROLLER_REVISIONS, PODS, STATEFUL_SETS};
use apimachinery::patch::merge;
use apimachinery::value;
use controller::decide;
use controller::testing::{FakeCluster, check_properties, kubelet, run_until_stable};
use proptest::prelude::*;

use super::*;

fn set(replicas: i64) -> Value {
    value!({"metadata": {"namespace": "a", "name": "db"},
        "spec": {"replicas": replicas, "serviceName": "svc", "selector": {"matchLabels": {"app": "db"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}}}})
}

fn with(set: Value, change: Value) -> Value {
    merge::apply(set, change)
}

fn new_cluster(set: Value) -> FakeCluster {
    let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    cluster.add(&kinds::STATEFUL_SETS, set);
    cluster
}

fn key(name: &str) -> Key {
    Key::new("a", name)
}

fn change(cluster: &mut FakeCluster, change: Value) {
    cluster.change(&kinds::STATEFUL_SETS, &key("db"), |set| *set = merge::apply(set.take(), change));
}

fn plan(cluster: &FakeCluster) -> String {
    decide::<StatefulSet>(&cluster.cache::<StatefulSet>(), &(), &key("db"), cluster.now).to_string()
}

fn status(cluster: &FakeCluster) -> Value {
    cluster.get(&kinds::STATEFUL_SETS, &key("db")).unwrap()["status"].clone()
}

fn pods(cluster: &FakeCluster) -> Vec<String> {
    let show =
        |pod: &Value| format!("{} {}", Meta::of(pod).name(), pod["spec"]["containers"][0]["image"].as_str().unwrap());
    cluster.of(PODS).iter().map(|entry| show(&entry.value)).collect()
}

/// Returns the writes of pods and claims in order.
fn writes(cluster: &FakeCluster) -> Vec<&str> {
    let of_interest = |line: &&String| line.contains(" pods ") || line.contains(" persistentvolumeclaims ");
    cluster.log.iter().filter(of_interest).map(String::as_str).collect()
}

#[test]
fn pods_are_created_in_order_and_deleted_in_reverse() {
    let mut cluster = new_cluster(set(3));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    assert_eq!(writes(&cluster), ["create pods a/db-0", "create pods a/db-1", "create pods a/db-2"]);
    let reported_status = status(&cluster);
    for field in ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"] {
        assert_eq!(reported_status[field], 3.into(), "{reported_status}");
    }
    assert_eq!((&reported_status["collisionCount"], &reported_status["observedGeneration"]), (&0.into(), &1.into()));
    assert_eq!(reported_status["currentRevision"], reported_status["updateRevision"]);
    cluster.log.clear();
    change(&mut cluster, value!({"spec": {"replicas": 1}}));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    assert_eq!(writes(&cluster), ["delete pods a/db-2", "delete pods a/db-1"]);
}

#[test]
fn pod_has_its_name_ordinal_and_claims() {
    let claims = value!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]);
    let mut cluster =
        new_cluster(with(set(1), value!({"spec": {"volumeClaimTemplates": claims, "ordinals": {"start": 5}}})));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    assert_eq!(writes(&cluster), ["create persistentvolumeclaims a/data-db-5", "create pods a/db-5"]);
    let pod = cluster.get(&kinds::PODS, &key("db-5")).unwrap();
    let meta = Meta::of(pod);
    assert_eq!(meta.label("statefulset.kubernetes.io/pod-name"), Some("db-5"));
    assert_eq!(meta.label("apps.kubernetes.io/pod-index"), Some("5"));
    assert_eq!(meta.label("controller-revision-hash"), status(&cluster).str_at(&["currentRevision"]));
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&"db-5".into(), &"svc".into()));
    assert_eq!(pod["spec"]["volumes"], value!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-5"}}]));
    let claim = cluster.get(&kinds::PERSISTENT_VOLUME_CLAIMS, &key("data-db-5")).unwrap();
    assert_eq!(Meta::of(claim).label("app"), Some("db"));
    assert!(Meta::of(claim).owner_references().next().is_none(), "it stays unless it is said otherwise");
}

#[test]
fn rolling_update_replaces_pods_down_to_the_partition() {
    let mut cluster = new_cluster(set(3));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    cluster.log.clear();
    let partition = value!({"rollingUpdate": {"partition": 1}});
    let image = value!({"spec": {"containers": [{"name": "c", "image": "v2"}]}});
    change(&mut cluster, value!({"spec": {"updateStrategy": partition, "template": image}}));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    assert_eq!(pods(&cluster), ["db-0 v1", "db-1 v2", "db-2 v2"]);
    let steps = ["delete pods a/db-2", "create pods a/db-2", "delete pods a/db-1", "create pods a/db-1"];
    assert_eq!(writes(&cluster), steps);
    assert_ne!(status(&cluster)["currentRevision"], status(&cluster)["updateRevision"]);
    cluster.remove(&kinds::PODS, &key("db-0"));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    assert_eq!(pods(&cluster)[0], "db-0 v1", "below the partition the old revision comes back");
    change(&mut cluster, value!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    assert_eq!(pods(&cluster), ["db-0 v2", "db-1 v2", "db-2 v2"]);
    assert_eq!(status(&cluster)["currentRevision"], status(&cluster)["updateRevision"]);
}

#[test]
fn rollback_reuses_the_existing_revision() {
    let mut cluster = new_cluster(set(1));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    for image in ["v2", "v1"] {
        change(&mut cluster, value!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}));
        run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    }
    let numbers: Vec<i64> =
        cluster.of(CONTROLLER_REVISIONS).iter().map(|one| one.value["revision"].as_int().unwrap()).collect();
    assert_eq!(numbers.len(), 2);
    assert!(numbers.contains(&2) && numbers.contains(&3), "{numbers:?}");
    change(&mut cluster, value!({"spec": {"revisionHistoryLimit": 0}}));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    assert_eq!(cluster.of(CONTROLLER_REVISIONS).len(), 1, "the unused revision is deleted");
}

#[test]
fn parallel_pod_management_does_not_wait() {
    let mut cluster = new_cluster(with(set(3), value!({"spec": {"podManagementPolicy": "Parallel"}})));
    run_until_stable::<StatefulSet>(&mut cluster, |_| false);
    assert_eq!(cluster.of(PODS).len(), 3, "none of them runs yet");
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    cluster.log.clear();
    change(&mut cluster, value!({"spec": {"replicas": 0}}));
    assert_eq!(plan(&cluster).matches("delete pods").count(), 3, "{}", plan(&cluster));
}

#[test]
fn max_unavailable_allows_several_pods_to_be_replaced() {
    let mut cluster = new_cluster(set(4));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    let rolling = value!({"rollingUpdate": {"partition": 0, "maxUnavailable": "50%"}});
    let image = value!({"spec": {"containers": [{"name": "c", "image": "v2"}]}});
    change(&mut cluster, value!({"spec": {"updateStrategy": rolling, "template": image}}));
    let plan_of = |cluster: &mut FakeCluster| {
        let plan = decide::<StatefulSet>(&cluster.cache::<StatefulSet>(), &(), &key("db"), cluster.now);
        plan.actions.iter().for_each(|action| cluster.execute(action).unwrap());
        plan.to_string()
    };
    assert!(plan_of(&mut cluster).starts_with("create controllerrevisions.apps"));
    assert!(plan_of(&mut cluster).starts_with("delete pods a/db-3\ndelete pods a/db-2\n"));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    assert!(pods(&cluster).iter().all(|pod| pod.ends_with("v2")), "{:?}", pods(&cluster));
}

#[test]
fn terminated_pod_is_replaced_and_an_unready_one_blocks_the_rest() {
    let mut cluster = new_cluster(set(2));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    cluster.change(&kinds::PODS, &key("db-0"), |pod| {
        *pod = merge::apply(pod.take(), value!({"status": {"phase": "Failed"}}));
    });
    assert!(plan(&cluster).starts_with(
        "event StatefulSet a/db Warning RecreatingFailedPod: StatefulSet a/db is recreating failed Pod db-0\ndelete pods a/db-0\n"
    ));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    let sick = value!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    cluster.change(&kinds::PODS, &key("db-0"), |pod| *pod = merge::apply(pod.take(), sick));
    change(&mut cluster, value!({"spec": {"replicas": 3}}));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    assert_eq!(cluster.of(PODS).len(), 2);
    assert!(plan(&cluster).ends_with("waiting: db-0 is not ready\n"), "{}", plan(&cluster));
}

#[test]
fn claims_follow_the_retention_policy() {
    let claims = value!([{"metadata": {"name": "data"}, "spec": {}}]);
    let policy = value!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    let spec = value!({"volumeClaimTemplates": claims, "persistentVolumeClaimRetentionPolicy": policy});
    let mut cluster = new_cluster(with(set(2), value!({"spec": spec})));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    let owner = |cluster: &FakeCluster, name: &str| {
        let claim = cluster.get(&kinds::PERSISTENT_VOLUME_CLAIMS, &key(name)).unwrap();
        Meta::of(claim).owner_references().map(|owner| owner.kind().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(owner(&cluster, "data-db-1"), ["StatefulSet"]);
    change(&mut cluster, value!({"spec": {"replicas": 1}}));
    run_until_stable::<StatefulSet>(&mut cluster, kubelet);
    assert_eq!(owner(&cluster, "data-db-1"), ["Pod"], "it goes with the pod that is beyond the row");
    assert_eq!(owner(&cluster, "data-db-0"), ["StatefulSet"]);
}

prop_compose! {
    fn arbitrary_cluster()(
        before in 0..4i64, after in 0..4i64, start in 0..2i64, partition in 0..3i64, min_ready in prop::sample::select(vec![0, 10]),
        parallel in any::<bool>(), new_image in any::<bool>(), claims in any::<bool>(), keep in any::<bool>(),
        broken in prop::option::of((0..4i64, prop::sample::select(vec!["Failed", "Succeeded", "Pending"]))),
    ) -> FakeCluster {
        let management = if parallel { "Parallel" } else { "OrderedReady" };
        let mut spec = value!({"ordinals": {"start": start}, "podManagementPolicy": management, "minReadySeconds": min_ready});
        if claims {
            let policy = value!({"whenScaled": (if keep { "Retain" } else { "Delete" }), "whenDeleted": "Delete"});
            spec = merge::apply(spec, value!({"persistentVolumeClaimRetentionPolicy": policy,
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]}));
        }
        let mut cluster = new_cluster(with(set(before), value!({"spec": spec})));
        run_until_stable::<StatefulSet>(&mut cluster, kubelet);
        if let Some((at, phase)) = broken {
            let key = key(&format!("db-{at}"));
            if cluster.get(&kinds::PODS, &key).is_some() {
                cluster.change(&kinds::PODS, &key, |pod| *pod = merge::apply(pod.take(), value!({"status": {"phase": phase}})));
            }
        }
        let image = if new_image { "v2" } else { "v1" };
        change(&mut cluster, value!({"spec": {"replicas": after, "updateStrategy": {"rollingUpdate": {"partition": partition}},
            "template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}));
        cluster
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn properties_hold_in_generated_clusters(cluster in arbitrary_cluster()) {
        check_properties::<StatefulSet>(&cluster, kubelet);
        let mut final_cluster = cluster;
        run_until_stable::<StatefulSet>(&mut final_cluster, kubelet);
        let entry = final_cluster.of(STATEFUL_SETS).iter().next().unwrap().value.clone();
        prop_assert_eq!(final_cluster.of(PODS).len() as i64, replicas(&entry));
    }
}
