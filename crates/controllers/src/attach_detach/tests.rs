use api::resources::{NODES, VOLUME_ATTACHMENTS};
use controller::testing::{FakeCluster, check_properties, run_until_stable};
use proptest::prelude::*;

use super::*;

fn new_cluster(nodes: &[&str]) -> FakeCluster {
    let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    for node in nodes {
        let metadata = value!({"name": (*node), "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}});
        cluster.add(&kinds::NODES, value!({"metadata": metadata, "status": {}}));
    }
    cluster
}

/// Adds a claim that is bound to a volume of `driver`.
fn volume(cluster: &mut FakeCluster, name: &str, driver: &str, mode: &str) {
    let key = cluster.add(
        &kinds::PERSISTENT_VOLUME_CLAIMS,
        value!({"metadata": {"namespace": "a", "name": name}, "spec": {"volumeName": (format!("pv-{name}"))}}),
    );
    let uid = Meta::of(cluster.get(&kinds::PERSISTENT_VOLUME_CLAIMS, &key).unwrap()).uid().to_owned();
    cluster.add(
        &kinds::PERSISTENT_VOLUMES,
        value!({"metadata": {"name": (format!("pv-{name}"))}, "spec": {"accessModes": [mode],
            "csi": {"driver": driver, "volumeHandle": (format!("handle-{name}"))},
            "claimRef": {"namespace": "a", "name": name, "uid": uid}}}),
    );
}

fn pod(cluster: &mut FakeCluster, name: &str, node: &str, claim: &str) -> Key {
    let volumes = value!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    cluster.add(
        &kinds::PODS,
        value!({"metadata": {"namespace": "a", "name": name}, "spec": {"nodeName": node, "volumes": volumes}}),
    )
}

/// Simulates CSI drivers and kubelets: attaches volumes, mounts those in volumesAttached, unmounts those without pods.
fn drivers(cluster: &mut FakeCluster) -> bool {
    let before = cluster.revision();
    for entry in cluster.of(VOLUME_ATTACHMENTS).iter() {
        if !entry.value.is_true_at(&["status", "attached"]) {
            cluster.change(&kinds::VOLUME_ATTACHMENTS, &entry.key, |it| {
                it.as_object_mut().unwrap().insert("status", value!({"attached": true}));
            });
        }
    }
    for entry in cluster.of(NODES).iter() {
        let attached: Vec<Value> = attached_volume_names(&entry.value).into_iter().map(Value::from).collect();
        if entry.value.list_at(&["status", "volumesInUse"]) != attached {
            cluster.change(&kinds::NODES, &entry.key, |node| {
                node.get_mut("status").and_then(Value::as_object_mut).unwrap().insert("volumesInUse", attached);
            });
        }
    }
    cluster.revision() != before
}

fn attached_volumes(cluster: &FakeCluster, node: &str) -> Vec<String> {
    attached_volume_names(cluster.get(&kinds::NODES, &Key::cluster(node)).unwrap())
        .into_iter()
        .map(str::to_owned)
        .collect()
}

#[test]
fn volume_is_attached_for_its_pod_and_detached_after_it() {
    let mut cluster = new_cluster(&["n"]);
    volume(&mut cluster, "c", "disk.example", "ReadWriteOnce");
    let key = pod(&mut cluster, "p", "n", "c");
    check_properties::<AttachDetach>(&cluster, drivers);
    run_until_stable::<AttachDetach>(&mut cluster, drivers);
    assert_eq!(attached_volumes(&cluster, "n"), ["kubernetes.io/csi/disk.example^handle-c"]);
    let attachments = cluster.of(VOLUME_ATTACHMENTS);
    let made = &attachments.iter().next().unwrap().value;
    // echo -n handle-cdisk.examplen | sha256sum
    assert_eq!(Meta::of(made).name(), "csi-b94b0382ffd07c600455b44f1da8d3de1ff097fc6eaaf493f1a9dc4d1c55cdd6");
    assert!(
        cluster
            .log
            .iter()
            .any(|line| line.contains("SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume \"pv-c\""))
    );
    cluster.remove(&kinds::PODS, &key);
    check_properties::<AttachDetach>(&cluster, drivers);
    run_until_stable::<AttachDetach>(&mut cluster, drivers);
    assert_eq!(attached_volumes(&cluster, "n"), [""; 0]);
    assert!(cluster.of(VOLUME_ATTACHMENTS).is_empty());
}

#[test]
fn mounted_volume_is_detached_after_six_minutes_of_a_not_ready_node() {
    let mut cluster = new_cluster(&["n"]);
    volume(&mut cluster, "c", "disk.example", "ReadWriteOnce");
    let key = pod(&mut cluster, "p", "n", "c");
    run_until_stable::<AttachDetach>(&mut cluster, drivers);
    cluster.remove(&kinds::PODS, &key);
    run_until_stable::<AttachDetach>(&mut cluster, |_| false);
    assert_eq!(cluster.of(VOLUME_ATTACHMENTS).len(), 1, "the kubelet has it mounted");
    let start = cluster.now;
    cluster.change(&kinds::NODES, &Key::cluster("n"), |node| {
        let silent = value!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": (start.to_string())}]);
        node.get_mut("status").and_then(Value::as_object_mut).unwrap().insert("conditions", silent);
    });
    run_until_stable::<AttachDetach>(&mut cluster, |_| false);
    assert!(cluster.of(VOLUME_ATTACHMENTS).is_empty());
    assert_eq!(cluster.now.since(start).whole_seconds(), 360);
}

#[test]
fn exclusive_volume_is_attached_to_another_node_after_detach() {
    let mut cluster = new_cluster(&["m", "n"]);
    volume(&mut cluster, "c", "disk.example", "ReadWriteOnce");
    volume(&mut cluster, "shared", "disk.example", "ReadWriteMany");
    let first = pod(&mut cluster, "p", "n", "c");
    run_until_stable::<AttachDetach>(&mut cluster, drivers);
    pod(&mut cluster, "q", "m", "c");
    pod(&mut cluster, "r", "m", "shared");
    pod(&mut cluster, "s", "n", "shared");
    run_until_stable::<AttachDetach>(&mut cluster, drivers);
    assert_eq!(attached_volumes(&cluster, "m"), ["kubernetes.io/csi/disk.example^handle-shared"]);
    let expected = "event Pod a/q Warning FailedAttachVolume: Multi-Attach error for volume \"pv-c\" Volume is already exclusively \
        attached to one node and can't be attached to another";
    assert!(cluster.log.iter().any(|line| line == expected));
    cluster.remove(&kinds::PODS, &first);
    run_until_stable::<AttachDetach>(&mut cluster, drivers);
    assert_eq!(attached_volumes(&cluster, "m").len(), 2);
}

#[test]
fn driver_without_attach_required_gets_no_volume_attachment() {
    let mut cluster = new_cluster(&["n"]);
    volume(&mut cluster, "c", "files.example", "ReadWriteOnce");
    pod(&mut cluster, "p", "n", "c");
    cluster
        .add(&kinds::CSI_DRIVERS, value!({"metadata": {"name": "files.example"}, "spec": {"attachRequired": false}}));
    cluster.add(
        &kinds::VOLUME_ATTACHMENTS,
        value!({"metadata": {"name": "somebody-elses"}, "spec": {"nodeName": "n", "attacher": "x", "source": {}}}),
    );
    run_until_stable::<AttachDetach>(&mut cluster, drivers);
    assert_eq!(cluster.of(VOLUME_ATTACHMENTS).len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn properties_hold_in_generated_clusters(pods in prop::collection::vec((0..2usize, 0..2usize, any::<bool>()), 0..4)) {
        let mut cluster = new_cluster(&["m", "n"]);
        for name in ["c0", "c1"] {
            volume(&mut cluster, name, "disk.example", "ReadWriteMany");
        }
        let mut keys = Vec::new();
        for (number, (node, claim, goes)) in pods.iter().enumerate() {
            let key = pod(&mut cluster, &format!("p{number}"), ["m", "n"][*node], ["c0", "c1"][*claim]);
            keys.extend(goes.then_some(key));
        }
        check_properties::<AttachDetach>(&cluster, drivers);
        run_until_stable::<AttachDetach>(&mut cluster, drivers);
        keys.iter().for_each(|key| cluster.remove(&kinds::PODS, key));
        check_properties::<AttachDetach>(&cluster, drivers);
        run_until_stable::<AttachDetach>(&mut cluster, drivers);
        let left: std::collections::BTreeSet<_> =
            pods.iter().filter(|(_, _, goes)| !goes).map(|(node, claim, _)| (node, claim)).collect();
        prop_assert_eq!(cluster.of(VOLUME_ATTACHMENTS).len(), left.len());
    }
}
