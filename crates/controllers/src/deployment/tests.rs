use api::resources::{PODS, REPLICA_SETS};
use api::view::Pod;
use apimachinery::{Resource, value};
use controller::testing::{FakeCluster, check_properties, kubelet, run_until_stable};
use controller::{Rejection, decide};
use proptest::prelude::*;

use super::new_set::{HASH, HISTORY, REVISION};
use super::*;
use crate::replicaset::ReplicaSet;

fn deployment(replicas: i64, image: &str) -> Value {
    value!({"metadata": {"namespace": "a", "name": "web"},
        "spec": {"replicas": replicas, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}}}})
}

fn new_cluster(deployment: Value) -> FakeCluster {
    let mut fake_cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    fake_cluster.add(&kinds::DEPLOYMENTS, deployment);
    fake_cluster
}

fn key() -> Key {
    Key::new("a", "web")
}

fn change(fake_cluster: &mut FakeCluster, resource: &Resource, name: &str, change: Value) {
    fake_cluster.change(resource, &Key::new("a", name), |object| {
        *object = apimachinery::patch::merge::apply(object.take(), change);
    });
}

fn edit(fake_cluster: &mut FakeCluster, spec: Value) {
    change(fake_cluster, &kinds::DEPLOYMENTS, "web", value!({"spec": spec}));
}

fn set_image(fake_cluster: &mut FakeCluster, image: &str) {
    edit(fake_cluster, value!({"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}));
}

/// Simulates the ReplicaSet controller and the nodes.
fn cluster(fake_cluster: &mut FakeCluster) -> bool {
    let mut busy = false;
    for entry in fake_cluster.of(REPLICA_SETS).iter() {
        let plan = decide::<ReplicaSet>(&fake_cluster.cache::<ReplicaSet>(), &(), &entry.key, fake_cluster.now);
        busy |= !plan.actions.is_empty();
        plan.actions.iter().for_each(|action| drop(fake_cluster.execute(action)));
    }
    kubelet(fake_cluster) || busy
}

fn the(fake_cluster: &FakeCluster) -> Value {
    fake_cluster.get(&kinds::DEPLOYMENTS, &key()).unwrap().clone()
}

/// Formats each ReplicaSet: revision, image, size, generation.
fn sets(fake_cluster: &FakeCluster) -> Vec<String> {
    let mut lines: Vec<String> = fake_cluster
        .of(REPLICA_SETS)
        .iter()
        .map(|entry| {
            let set = &entry.value;
            let meta = Meta::of(set);
            let image = set.at(&["spec", "template", "spec"]).unwrap()["containers"][0]["image"].to_string();
            format!("{} {image} {} g{}", meta.annotation(REVISION).unwrap(), replicas(set), meta.generation())
        })
        .collect();
    lines.sort();
    lines
}

fn condition(fake_cluster: &FakeCluster, kind: &str) -> String {
    let object = the(fake_cluster);
    let found = crate::condition::find(&object, kind).cloned().unwrap_or_default();
    format!("{} {}", found["status"].as_str().unwrap_or_default(), found["reason"].as_str().unwrap_or_default())
}

#[test]
fn deployment_creates_one_replicaset_and_becomes_available() {
    let mut fake_cluster = new_cluster(deployment(3, "v1"));
    run_until_stable::<Deployment>(&mut fake_cluster, cluster);
    assert_eq!(sets(&fake_cluster), ["1 \"v1\" 3 g1"]);
    let object = the(&fake_cluster);
    assert_eq!(Meta::of(&object).annotation(REVISION), Some("1"));
    let mut status = object["status"].clone();
    let conditions = status.as_object_mut().unwrap().remove("conditions").unwrap();
    let expect = r#"{"availableReplicas":3,"observedGeneration":1,"readyReplicas":3,"replicas":3,"terminatingReplicas":0,"updatedReplicas":3}"#;
    assert_eq!(status.to_string(), expect);
    assert_eq!(conditions[0]["message"], "Deployment has minimum availability.".into());
    assert_eq!(condition(&fake_cluster, "Progressing"), "True NewReplicaSetAvailable");
    let all = fake_cluster.of(REPLICA_SETS);
    let set = &all.iter().next().unwrap().value;
    let meta = Meta::of(set);
    let hash = meta.label(HASH).unwrap();
    assert_eq!(meta.name(), format!("web-{hash}"));
    assert_eq!(set.str_at(&["spec", "selector", "matchLabels", HASH]), Some(hash));
    assert_eq!(set.str_at(&["spec", "template", "metadata", "labels", HASH]), Some(hash));
    assert_eq!(meta.annotation("deployment.kubernetes.io/desired-replicas"), Some("3"));
    assert_eq!(meta.annotation("deployment.kubernetes.io/max-replicas"), Some("4"));
}

/// Asserts the rollout bounds, which hold at every step.
fn within_bounds(fake_cluster: &FakeCluster, available_min: usize, total_max: usize) {
    let pods = fake_cluster.of(PODS);
    let alive = pods.iter().filter(|entry| Pod(&entry.value).is_active()).count();
    let ready = pods.iter().filter(|entry| Pod(&entry.value).is_active() && Pod(&entry.value).is_ready()).count();
    assert!(alive <= total_max, "{alive} pods");
    assert!(ready >= available_min, "{ready} ready");
}

/// Executes one plan of the Deployment controller, without any other controller.
fn step(fake_cluster: &mut FakeCluster) {
    let plan = decide::<Deployment>(&fake_cluster.cache::<Deployment>(), &(), &key(), fake_cluster.now);
    plan.actions.iter().for_each(|action| drop(fake_cluster.execute(action)));
}

/// Returns `spec.replicas` of the ReplicaSet with an image.
fn size_of(fake_cluster: &FakeCluster, image: &str) -> i64 {
    let all = fake_cluster.of(REPLICA_SETS);
    let is = |set: &Value| set.at(&["spec", "template", "spec"]).unwrap()["containers"][0]["image"] == image.into();
    all.iter().find(|entry| is(&entry.value)).map_or(0, |entry| replicas(&entry.value))
}

#[test]
fn outdated_replicaset_status_does_not_break_the_bounds() {
    let mut fake_cluster = new_cluster(deployment(8, "v1"));
    run_until_stable::<Deployment>(&mut fake_cluster, cluster);
    set_image(&mut fake_cluster, "v2");
    for _ in 0..3 {
        step(&mut fake_cluster);
    }
    // The old ReplicaSet still reports all eight replicas.
    assert_eq!((size_of(&fake_cluster, "v1"), size_of(&fake_cluster, "v2")), (6, 2), "ten at most, and six are enough");
    let names: Vec<(String, bool)> = fake_cluster
        .of(REPLICA_SETS)
        .iter()
        .map(|entry| (entry.key.name.to_string(), replicas(&entry.value) == 2))
        .collect();
    let new = names.iter().find(|(_, is_new)| *is_new).unwrap().0.clone();
    change(
        &mut fake_cluster,
        &kinds::REPLICA_SETS,
        &new,
        value!({"status": {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}}),
    );
    for _ in 0..3 {
        step(&mut fake_cluster);
    }
    let (old, new) = (size_of(&fake_cluster, "v1"), size_of(&fake_cluster, "v2"));
    assert!(old >= 4, "two new ones serve, so four old ones must: {old}");
    assert!(new <= 2, "eight old ones are still there, so there is room for two new ones: {new}");
}

#[test]
fn rollout_proceeds_in_steps_within_its_bounds() {
    let mut fake_cluster = new_cluster(deployment(3, "v1"));
    run_until_stable::<Deployment>(&mut fake_cluster, cluster);
    set_image(&mut fake_cluster, "v2");
    run_until_stable::<Deployment>(&mut fake_cluster, |fake_cluster| {
        within_bounds(fake_cluster, 3, 4);
        let busy = cluster(fake_cluster);
        within_bounds(fake_cluster, 3, 4);
        busy
    });
    // Upstream produces the same generations: three steps down, two up.
    assert_eq!(sets(&fake_cluster), ["1 \"v1\" 0 g4", "2 \"v2\" 3 g3"]);
    assert_eq!(Meta::of(&the(&fake_cluster)).annotation(REVISION), Some("2"));
}

#[test]
fn rollback_reuses_the_old_replicaset_as_the_newest_revision() {
    let mut fake_cluster = new_cluster(deployment(2, "v1"));
    for image in ["v1", "v2", "v1"] {
        set_image(&mut fake_cluster, image);
        run_until_stable::<Deployment>(&mut fake_cluster, cluster);
    }
    let lines = sets(&fake_cluster);
    assert!(lines[0].starts_with("2 \"v2\" 0") && lines[1].starts_with("3 \"v1\" 2"), "{lines:?}");
    let all = fake_cluster.of(REPLICA_SETS);
    let histories: Vec<_> = all.iter().filter_map(|entry| Meta::of(&entry.value).annotation(HISTORY)).collect();
    assert_eq!(histories, ["1"]);
    assert_eq!(condition(&fake_cluster, "Progressing"), "True NewReplicaSetAvailable");
}

#[test]
fn recreate_waits_until_old_pods_have_terminated() {
    let mut fake_cluster = new_cluster(deployment(3, "v1"));
    edit(&mut fake_cluster, value!({"strategy": {"type": "Recreate", "rollingUpdate": null}}));
    run_until_stable::<Deployment>(&mut fake_cluster, cluster);
    set_image(&mut fake_cluster, "v2");
    run_until_stable::<Deployment>(&mut fake_cluster, |fake_cluster| {
        let pods = fake_cluster.of(PODS);
        let images: std::collections::BTreeSet<String> = pods
            .iter()
            .filter(|entry| !Pod(&entry.value).is_terminal())
            .map(|entry| entry.value["spec"]["containers"][0]["image"].to_string())
            .collect();
        assert!(images.len() <= 1, "{images:?}");
        cluster(fake_cluster)
    });
    assert_eq!(sets(&fake_cluster), ["1 \"v1\" 0 g2", "2 \"v2\" 3 g1"]);
}

#[test]
fn scaling_during_a_rollout_is_proportional() {
    let mut fake_cluster = new_cluster(deployment(10, "v1"));
    run_until_stable::<Deployment>(&mut fake_cluster, cluster);
    set_image(&mut fake_cluster, "v2");
    // New pods never become ready, so the rollout stops at 8 old and 5 new pods.
    let stuck = |fake_cluster: &mut FakeCluster| {
        let mut busy = false;
        for entry in fake_cluster.of(REPLICA_SETS).iter() {
            let plan = decide::<ReplicaSet>(&fake_cluster.cache::<ReplicaSet>(), &(), &entry.key, fake_cluster.now);
            busy |= !plan.actions.is_empty();
            plan.actions.iter().for_each(|action| drop(fake_cluster.execute(action)));
        }
        for entry in fake_cluster.of(PODS).iter().filter(|entry| Meta::of(&entry.value).is_deleting()) {
            fake_cluster.remove(&kinds::PODS, &entry.key);
            busy = true;
        }
        busy
    };
    run_until_stable::<Deployment>(&mut fake_cluster, stuck);
    let sizes = |fake_cluster: &FakeCluster| -> Vec<String> {
        sets(fake_cluster).iter().map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(sizes(&fake_cluster), ["1 \"v1\" 8", "2 \"v2\" 5"]);
    assert_eq!(condition(&fake_cluster, "Progressing"), "False ProgressDeadlineExceeded");
    edit(&mut fake_cluster, value!({"replicas": 20}));
    run_until_stable::<Deployment>(&mut fake_cluster, stuck);
    // Scaling from 13 to 25 makes 15 of the 8 and 10 of the 5.
    assert_eq!(sizes(&fake_cluster), ["1 \"v1\" 15", "2 \"v2\" 10"]);
}

#[test]
fn paused_deployment_is_scaled_but_not_rolled_out() {
    let mut fake_cluster = new_cluster(deployment(2, "v1"));
    run_until_stable::<Deployment>(&mut fake_cluster, cluster);
    edit(&mut fake_cluster, value!({"paused": true, "replicas": 4}));
    set_image(&mut fake_cluster, "v2");
    run_until_stable::<Deployment>(&mut fake_cluster, cluster);
    assert_eq!(sets(&fake_cluster), ["1 \"v1\" 4 g2"]);
    assert_eq!(condition(&fake_cluster, "Progressing"), "Unknown DeploymentPaused");
    edit(&mut fake_cluster, value!({"paused": null}));
    run_until_stable::<Deployment>(&mut fake_cluster, cluster);
    assert_eq!(sets(&fake_cluster).len(), 2);
    assert_eq!(condition(&fake_cluster, "Progressing"), "True NewReplicaSetAvailable");
}

#[test]
fn replicasets_beyond_the_history_limit_are_deleted() {
    let mut fake_cluster = new_cluster(deployment(1, "v0"));
    edit(&mut fake_cluster, value!({"revisionHistoryLimit": 2}));
    for number in 0..6 {
        set_image(&mut fake_cluster, &format!("v{number}"));
        run_until_stable::<Deployment>(&mut fake_cluster, cluster);
    }
    let revisions: Vec<String> = sets(&fake_cluster).iter().map(|line| line[..1].to_owned()).collect();
    assert_eq!(revisions, ["4", "5", "6"]);
}

#[test]
fn name_collision_increments_the_collision_count() {
    let mut fake_cluster = new_cluster(deployment(1, "v1"));
    let name = new_set::name(&the(&fake_cluster));
    let foreign = value!({"metadata": {"namespace": "a", "name": (name.as_str())}, "spec": {"replicas": 0}});
    fake_cluster.add(&kinds::REPLICA_SETS, foreign);
    run_until_stable::<Deployment>(&mut fake_cluster, |fake_cluster| {
        fake_cluster.of(REPLICA_SETS).len() > 1 && cluster(fake_cluster)
    });
    assert_eq!(the(&fake_cluster)["status"]["collisionCount"], 1.into());
    assert_eq!(fake_cluster.of(REPLICA_SETS).len(), 2);
}

#[test]
fn replicasets_are_adopted_and_released_by_labels() {
    let mut fake_cluster = new_cluster(deployment(2, "v1"));
    run_until_stable::<Deployment>(&mut fake_cluster, cluster);
    let name = fake_cluster.of(REPLICA_SETS).iter().next().unwrap().key.name.clone();
    change(&mut fake_cluster, &kinds::REPLICA_SETS, &name, value!({"metadata": {"ownerReferences": null}}));
    run_until_stable::<Deployment>(&mut fake_cluster, cluster);
    let set = fake_cluster.get(&kinds::REPLICA_SETS, &Key::new("a", name.clone())).unwrap();
    assert_eq!(Meta::of(set).controller().unwrap().name(), "web");
    assert_eq!(fake_cluster.of(REPLICA_SETS).len(), 1);
}

#[test]
fn failed_replicaset_creation_is_reported_in_the_condition() {
    let fake_cluster = new_cluster(deployment(1, "v1"));
    let rejection = Rejection {
        resource: kinds::REPLICA_SETS.clone(),
        subresource: "",
        create: true,
        reason: "Forbidden".into(),
        message: "no".into(),
    };
    let cache = fake_cluster.cache::<Deployment>().with_rejection(Some(rejection));
    let plan = decide::<Deployment>(&cache, &(), &key(), fake_cluster.now);
    let Some(Action::UpdateStatus { object, .. }) = plan.actions.last() else { panic!("{plan}") };
    let failing = crate::condition::find(object, "Progressing").unwrap();
    assert_eq!(failing["reason"], "ReplicaSetCreateError".into());
}

#[test]
fn properties_hold_throughout_a_rollout() {
    let mut fake_cluster = new_cluster(deployment(4, "v1"));
    check_properties::<Deployment>(&fake_cluster, cluster);
    run_until_stable::<Deployment>(&mut fake_cluster, cluster);
    set_image(&mut fake_cluster, "v2");
    check_properties::<Deployment>(&fake_cluster, cluster);
    edit(&mut fake_cluster, value!({"replicas": 7}));
    check_properties::<Deployment>(&fake_cluster, cluster);
    edit(&mut fake_cluster, value!({"strategy": {"type": "Recreate", "rollingUpdate": null}}));
    check_properties::<Deployment>(&fake_cluster, cluster);
}

#[derive(Clone, Debug)]
enum Edit {
    Size(i64),
    Image(u8),
    Bounds(i64, i64),
    Recreate,
    Pause(bool),
}

fn arbitrary_edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (0..6i64).prop_map(Edit::Size),
        (0..3u8).prop_map(Edit::Image),
        (0..3i64, 0..3i64).prop_map(|(surge, unavailable)| Edit::Bounds(surge, unavailable)),
        Just(Edit::Recreate),
        any::<bool>().prop_map(Edit::Pause),
    ]
}

fn make(fake_cluster: &mut FakeCluster, change: &Edit) {
    match change {
        Edit::Size(size) => edit(fake_cluster, value!({"replicas": (*size)})),
        Edit::Image(image) => set_image(fake_cluster, &format!("v{image}")),
        Edit::Bounds(surge, unavailable) => edit(
            fake_cluster,
            value!({"strategy": {"type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": (*surge), "maxUnavailable": (*unavailable)}}}),
        ),
        Edit::Recreate => edit(fake_cluster, value!({"strategy": {"type": "Recreate", "rollingUpdate": null}})),
        Edit::Pause(paused) => edit(fake_cluster, value!({"paused": (*paused)})),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn properties_hold_after_arbitrary_edits(
        size in 0..6i64,
        initial_edits in prop::collection::vec(arbitrary_edit(), 0..3),
        edits in prop::collection::vec(arbitrary_edit(), 0..3),
    ) {
        let mut fake_cluster = new_cluster(deployment(size, "v0"));
        for change in &initial_edits {
            make(&mut fake_cluster, change);
            run_until_stable::<Deployment>(&mut fake_cluster, cluster);
        }
        edits.iter().for_each(|change| make(&mut fake_cluster, change));
        check_properties::<Deployment>(&fake_cluster, cluster);
        edit(&mut fake_cluster, value!({"paused": null}));
        run_until_stable::<Deployment>(&mut fake_cluster, cluster);
        let object = the(&fake_cluster);
        let desired_replicas = replicas(&object);
        let count = |field| object.int_at(&["status", field]).unwrap_or(0);
        prop_assert_eq!((count("updatedReplicas"), count("availableReplicas"), count("replicas")), (desired_replicas, desired_replicas, desired_replicas));
    }
}
