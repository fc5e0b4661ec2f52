use apimachinery::patch::merge;
use apimachinery::value;
use controller::decide;
use controller::testing::{FakeCluster, check_properties, kubelet, settle};
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

fn world(set: Value) -> FakeCluster {
    let mut world = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    world.add(&kinds::STATEFUL_SETS, set);
    world
}

fn key(name: &str) -> Key {
    Key::new("a", name)
}

fn change(world: &mut FakeCluster, change: Value) {
    world.change(&kinds::STATEFUL_SETS, &key("db"), |set| *set = merge::apply(set.take(), change));
}

fn plan(world: &FakeCluster) -> String {
    decide::<StatefulSet>(&world.cache::<StatefulSet>(), &key("db"), world.now).to_string()
}

fn status(world: &FakeCluster) -> Value {
    world.get(&kinds::STATEFUL_SETS, &key("db")).unwrap()["status"].clone()
}

fn pods(world: &FakeCluster) -> Vec<String> {
    let show =
        |pod: &Value| format!("{} {}", Meta::of(pod).name(), pod["spec"]["containers"][0]["image"].as_str().unwrap());
    world.of("pods").iter().map(|entry| show(&entry.value)).collect()
}

/// Returns the writes of pods and claims in order.
fn story(world: &FakeCluster) -> Vec<&str> {
    let of_interest = |line: &&String| line.contains(" pods ") || line.contains(" persistentvolumeclaims ");
    world.log.iter().filter(of_interest).map(String::as_str).collect()
}

#[test]
fn pods_are_created_in_order_and_deleted_in_reverse() {
    let mut world = world(set(3));
    settle::<StatefulSet>(&mut world, kubelet);
    assert_eq!(story(&world), ["create pods a/db-0", "create pods a/db-1", "create pods a/db-2"]);
    let told = status(&world);
    for field in ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"] {
        assert_eq!(told[field], 3.into(), "{told}");
    }
    assert_eq!((&told["collisionCount"], &told["observedGeneration"]), (&0.into(), &1.into()));
    assert_eq!(told["currentRevision"], told["updateRevision"]);
    world.log.clear();
    change(&mut world, value!({"spec": {"replicas": 1}}));
    settle::<StatefulSet>(&mut world, kubelet);
    assert_eq!(story(&world), ["delete pods a/db-2", "delete pods a/db-1"]);
}

#[test]
fn a_pod_has_its_name_ordinal_and_claims() {
    let claims = value!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]);
    let mut world = world(with(set(1), value!({"spec": {"volumeClaimTemplates": claims, "ordinals": {"start": 5}}})));
    settle::<StatefulSet>(&mut world, kubelet);
    assert_eq!(story(&world), ["create persistentvolumeclaims a/data-db-5", "create pods a/db-5"]);
    let pod = world.get(&kinds::PODS, &key("db-5")).unwrap();
    let meta = Meta::of(pod);
    assert_eq!(meta.label("statefulset.kubernetes.io/pod-name"), Some("db-5"));
    assert_eq!(meta.label("apps.kubernetes.io/pod-index"), Some("5"));
    assert_eq!(meta.label("controller-revision-hash"), status(&world).str_at(&["currentRevision"]));
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&"db-5".into(), &"svc".into()));
    assert_eq!(pod["spec"]["volumes"], value!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-5"}}]));
    let claim = world.get(&kinds::PERSISTENT_VOLUME_CLAIMS, &key("data-db-5")).unwrap();
    assert_eq!(Meta::of(claim).label("app"), Some("db"));
    assert!(Meta::of(claim).owner_references().next().is_none(), "it stays unless it is said otherwise");
}

#[test]
fn a_rolling_update_replaces_pods_down_to_the_partition() {
    let mut world = world(set(3));
    settle::<StatefulSet>(&mut world, kubelet);
    world.log.clear();
    let partition = value!({"rollingUpdate": {"partition": 1}});
    let image = value!({"spec": {"containers": [{"name": "c", "image": "v2"}]}});
    change(&mut world, value!({"spec": {"updateStrategy": partition, "template": image}}));
    settle::<StatefulSet>(&mut world, kubelet);
    assert_eq!(pods(&world), ["db-0 v1", "db-1 v2", "db-2 v2"]);
    let steps = ["delete pods a/db-2", "create pods a/db-2", "delete pods a/db-1", "create pods a/db-1"];
    assert_eq!(story(&world), steps);
    assert_ne!(status(&world)["currentRevision"], status(&world)["updateRevision"]);
    world.remove(&kinds::PODS, &key("db-0"));
    settle::<StatefulSet>(&mut world, kubelet);
    assert_eq!(pods(&world)[0], "db-0 v1", "below the partition the old revision comes back");
    change(&mut world, value!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}));
    settle::<StatefulSet>(&mut world, kubelet);
    assert_eq!(pods(&world), ["db-0 v2", "db-1 v2", "db-2 v2"]);
    assert_eq!(status(&world)["currentRevision"], status(&world)["updateRevision"]);
}

#[test]
fn a_rollback_reuses_the_existing_revision() {
    let mut world = world(set(1));
    settle::<StatefulSet>(&mut world, kubelet);
    for image in ["v2", "v1"] {
        change(&mut world, value!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}));
        settle::<StatefulSet>(&mut world, kubelet);
    }
    let numbers: Vec<i64> =
        world.of("controllerrevisions.apps").iter().map(|one| one.value["revision"].as_int().unwrap()).collect();
    assert_eq!(numbers.len(), 2);
    assert!(numbers.contains(&2) && numbers.contains(&3), "{numbers:?}");
    change(&mut world, value!({"spec": {"revisionHistoryLimit": 0}}));
    settle::<StatefulSet>(&mut world, kubelet);
    assert_eq!(world.of("controllerrevisions.apps").len(), 1, "the one that nobody needs goes");
}

#[test]
fn parallel_pod_management_does_not_wait() {
    let mut world = world(with(set(3), value!({"spec": {"podManagementPolicy": "Parallel"}})));
    settle::<StatefulSet>(&mut world, |_| false);
    assert_eq!(world.of("pods").len(), 3, "none of them runs yet");
    settle::<StatefulSet>(&mut world, kubelet);
    world.log.clear();
    change(&mut world, value!({"spec": {"replicas": 0}}));
    assert_eq!(plan(&world).matches("delete pods").count(), 3, "{}", plan(&world));
}

#[test]
fn max_unavailable_allows_several_pods_to_be_replaced() {
    let mut world = world(set(4));
    settle::<StatefulSet>(&mut world, kubelet);
    let rolling = value!({"rollingUpdate": {"partition": 0, "maxUnavailable": "50%"}});
    let image = value!({"spec": {"containers": [{"name": "c", "image": "v2"}]}});
    change(&mut world, value!({"spec": {"updateStrategy": rolling, "template": image}}));
    let plan_of = |world: &mut FakeCluster| {
        let plan = decide::<StatefulSet>(&world.cache::<StatefulSet>(), &key("db"), world.now);
        plan.actions.iter().for_each(|action| world.execute(action).unwrap());
        plan.to_string()
    };
    assert!(plan_of(&mut world).starts_with("create controllerrevisions.apps"));
    assert!(plan_of(&mut world).starts_with("delete pods a/db-3\ndelete pods a/db-2\n"));
    settle::<StatefulSet>(&mut world, kubelet);
    assert!(pods(&world).iter().all(|pod| pod.ends_with("v2")), "{:?}", pods(&world));
}

#[test]
fn a_terminated_pod_is_replaced_and_an_unready_one_blocks_the_rest() {
    let mut world = world(set(2));
    settle::<StatefulSet>(&mut world, kubelet);
    world.change(&kinds::PODS, &key("db-0"), |pod| {
        *pod = merge::apply(pod.take(), value!({"status": {"phase": "Failed"}}));
    });
    assert!(plan(&world).starts_with(
        "event StatefulSet a/db Warning RecreatingFailedPod: StatefulSet a/db is recreating failed Pod db-0\ndelete pods a/db-0\n"
    ));
    settle::<StatefulSet>(&mut world, kubelet);
    let sick = value!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    world.change(&kinds::PODS, &key("db-0"), |pod| *pod = merge::apply(pod.take(), sick));
    change(&mut world, value!({"spec": {"replicas": 3}}));
    settle::<StatefulSet>(&mut world, kubelet);
    assert_eq!(world.of("pods").len(), 2);
    assert!(plan(&world).ends_with("waiting: db-0 is not ready\n"), "{}", plan(&world));
}

#[test]
fn claims_follow_the_retention_policy() {
    let claims = value!([{"metadata": {"name": "data"}, "spec": {}}]);
    let policy = value!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    let spec = value!({"volumeClaimTemplates": claims, "persistentVolumeClaimRetentionPolicy": policy});
    let mut world = world(with(set(2), value!({"spec": spec})));
    settle::<StatefulSet>(&mut world, kubelet);
    let owner = |world: &FakeCluster, name: &str| {
        let claim = world.get(&kinds::PERSISTENT_VOLUME_CLAIMS, &key(name)).unwrap();
        Meta::of(claim).owner_references().map(|owner| owner.kind().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(owner(&world, "data-db-1"), ["StatefulSet"]);
    change(&mut world, value!({"spec": {"replicas": 1}}));
    settle::<StatefulSet>(&mut world, kubelet);
    assert_eq!(owner(&world, "data-db-1"), ["Pod"], "it goes with the pod that is beyond the row");
    assert_eq!(owner(&world, "data-db-0"), ["StatefulSet"]);
}

prop_compose! {
    fn arbitrary_world()(
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
        let mut world = world(with(set(before), value!({"spec": spec})));
        settle::<StatefulSet>(&mut world, kubelet);
        if let Some((at, phase)) = broken {
            let key = key(&format!("db-{at}"));
            if world.get(&kinds::PODS, &key).is_some() {
                world.change(&kinds::PODS, &key, |pod| *pod = merge::apply(pod.take(), value!({"status": {"phase": phase}})));
            }
        }
        let image = if new_image { "v2" } else { "v1" };
        change(&mut world, value!({"spec": {"replicas": after, "updateStrategy": {"rollingUpdate": {"partition": partition}},
            "template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}));
        world
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn properties_hold_in_generated_clusters(world in arbitrary_world()) {
        check_properties::<StatefulSet>(&world, kubelet);
        let mut settled = world;
        settle::<StatefulSet>(&mut settled, kubelet);
        let entry = settled.of("statefulsets.apps").iter().next().unwrap().value.clone();
        prop_assert_eq!(settled.of("pods").len() as i64, replicas(&entry));
    }
}
