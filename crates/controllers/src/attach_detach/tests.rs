use controller::testing::{FakeCluster, check_properties, settle};
use proptest::prelude::*;

use super::*;

fn world(nodes: &[&str]) -> FakeCluster {
    let mut world = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    for node in nodes {
        let metadata = value!({"name": (*node), "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}});
        world.add(&kinds::NODES, value!({"metadata": metadata, "status": {}}));
    }
    world
}

/// Adds a claim that is bound to a volume of `driver`.
fn volume(world: &mut FakeCluster, name: &str, driver: &str, mode: &str) {
    let key = world.add(
        &kinds::PERSISTENT_VOLUME_CLAIMS,
        value!({"metadata": {"namespace": "a", "name": name}, "spec": {"volumeName": (format!("pv-{name}"))}}),
    );
    let uid = Meta::of(world.get(&kinds::PERSISTENT_VOLUME_CLAIMS, &key).unwrap()).uid().to_owned();
    world.add(
        &kinds::PERSISTENT_VOLUMES,
        value!({"metadata": {"name": (format!("pv-{name}"))}, "spec": {"accessModes": [mode],
            "csi": {"driver": driver, "volumeHandle": (format!("handle-{name}"))},
            "claimRef": {"namespace": "a", "name": name, "uid": uid}}}),
    );
}

fn pod(world: &mut FakeCluster, name: &str, node: &str, claim: &str) -> Key {
    let volumes = value!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    world.add(
        &kinds::PODS,
        value!({"metadata": {"namespace": "a", "name": name}, "spec": {"nodeName": node, "volumes": volumes}}),
    )
}

/// Simulates CSI drivers and kubelets: attaches volumes, mounts those in volumesAttached, unmounts those without pods.
fn drivers(world: &mut FakeCluster) -> bool {
    let before = world.revision();
    for entry in world.of(ATTACHMENTS).iter() {
        if !crate::read::is_true(&entry.value, &["status", "attached"]) {
            world.change(&kinds::VOLUME_ATTACHMENTS, &entry.key, |it| {
                it.as_object_mut().unwrap().insert("status", value!({"attached": true}));
            });
        }
    }
    for entry in world.of("nodes").iter() {
        let told: Vec<Value> = told_names(&entry.value).into_iter().map(Value::from).collect();
        if entry.value.at(&["status", "volumesInUse"]).and_then(Value::as_array).unwrap_or_default() != told {
            world.change(&kinds::NODES, &entry.key, |node| {
                node.get_mut("status").and_then(Value::as_object_mut).unwrap().insert("volumesInUse", told);
            });
        }
    }
    world.revision() != before
}

fn told(world: &FakeCluster, node: &str) -> Vec<String> {
    told_names(world.get(&kinds::NODES, &Key::cluster(node)).unwrap()).into_iter().map(str::to_owned).collect()
}

#[test]
fn a_volume_is_attached_for_its_pod_and_detached_after_it() {
    let mut world = world(&["n"]);
    volume(&mut world, "c", "disk.example", "ReadWriteOnce");
    let key = pod(&mut world, "p", "n", "c");
    check_properties::<AttachDetach>(&world, drivers);
    settle::<AttachDetach>(&mut world, drivers);
    assert_eq!(told(&world, "n"), ["kubernetes.io/csi/disk.example^handle-c"]);
    let attachments = world.of(ATTACHMENTS);
    let made = &attachments.iter().next().unwrap().value;
    // echo -n handle-cdisk.examplen | sha256sum
    assert_eq!(Meta::of(made).name(), "csi-b94b0382ffd07c600455b44f1da8d3de1ff097fc6eaaf493f1a9dc4d1c55cdd6");
    assert!(
        world
            .log
            .iter()
            .any(|line| line.contains("SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume \"pv-c\""))
    );
    world.remove(&kinds::PODS, &key);
    check_properties::<AttachDetach>(&world, drivers);
    settle::<AttachDetach>(&mut world, drivers);
    assert_eq!(told(&world, "n"), [""; 0]);
    assert!(world.of(ATTACHMENTS).is_empty());
}

#[test]
fn a_mounted_volume_is_detached_after_six_minutes_of_a_not_ready_node() {
    let mut world = world(&["n"]);
    volume(&mut world, "c", "disk.example", "ReadWriteOnce");
    let key = pod(&mut world, "p", "n", "c");
    settle::<AttachDetach>(&mut world, drivers);
    world.remove(&kinds::PODS, &key);
    settle::<AttachDetach>(&mut world, |_| false);
    assert_eq!(world.of(ATTACHMENTS).len(), 1, "the kubelet has it mounted");
    let start = world.now;
    world.change(&kinds::NODES, &Key::cluster("n"), |node| {
        let silent = value!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": (start.to_string())}]);
        node.get_mut("status").and_then(Value::as_object_mut).unwrap().insert("conditions", silent);
    });
    settle::<AttachDetach>(&mut world, |_| false);
    assert!(world.of(ATTACHMENTS).is_empty());
    assert_eq!(world.now.since(start).whole_seconds(), 360);
}

#[test]
fn an_exclusive_volume_is_attached_to_another_node_after_detach() {
    let mut world = world(&["m", "n"]);
    volume(&mut world, "c", "disk.example", "ReadWriteOnce");
    volume(&mut world, "shared", "disk.example", "ReadWriteMany");
    let first = pod(&mut world, "p", "n", "c");
    settle::<AttachDetach>(&mut world, drivers);
    pod(&mut world, "q", "m", "c");
    pod(&mut world, "r", "m", "shared");
    pod(&mut world, "s", "n", "shared");
    settle::<AttachDetach>(&mut world, drivers);
    assert_eq!(told(&world, "m"), ["kubernetes.io/csi/disk.example^handle-shared"]);
    let said = "event Pod a/q Warning FailedAttachVolume: Multi-Attach error for volume \"pv-c\" Volume is already exclusively \
        attached to one node and can't be attached to another";
    assert!(world.log.iter().any(|line| line == said));
    world.remove(&kinds::PODS, &first);
    settle::<AttachDetach>(&mut world, drivers);
    assert_eq!(told(&world, "m").len(), 2);
}

#[test]
fn a_driver_without_attach_required_gets_no_volume_attachment() {
    let mut world = world(&["n"]);
    volume(&mut world, "c", "files.example", "ReadWriteOnce");
    pod(&mut world, "p", "n", "c");
    world.add(&kinds::CSI_DRIVERS, value!({"metadata": {"name": "files.example"}, "spec": {"attachRequired": false}}));
    world.add(
        &kinds::VOLUME_ATTACHMENTS,
        value!({"metadata": {"name": "somebody-elses"}, "spec": {"nodeName": "n", "attacher": "x", "source": {}}}),
    );
    settle::<AttachDetach>(&mut world, drivers);
    assert_eq!(world.of(ATTACHMENTS).len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn properties_hold_in_generated_clusters(pods in prop::collection::vec((0..2usize, 0..2usize, any::<bool>()), 0..4)) {
        let mut world = world(&["m", "n"]);
        for name in ["c0", "c1"] {
            volume(&mut world, name, "disk.example", "ReadWriteMany");
        }
        let mut keys = Vec::new();
        for (number, (node, claim, goes)) in pods.iter().enumerate() {
            let key = pod(&mut world, &format!("p{number}"), ["m", "n"][*node], ["c0", "c1"][*claim]);
            keys.extend(goes.then_some(key));
        }
        check_properties::<AttachDetach>(&world, drivers);
        settle::<AttachDetach>(&mut world, drivers);
        keys.iter().for_each(|key| world.remove(&kinds::PODS, key));
        check_properties::<AttachDetach>(&world, drivers);
        settle::<AttachDetach>(&mut world, drivers);
        let left: std::collections::BTreeSet<_> =
            pods.iter().filter(|(_, _, goes)| !goes).map(|(node, claim, _)| (node, claim)).collect();
        prop_assert_eq!(world.of(ATTACHMENTS).len(), left.len());
    }
}
