use apimachinery::{Value, value};

use super::*;
use crate::node::Node;
use crate::profile::Profile;
use crate::schedule::{Context, Decision, schedule};

/// Creates two nodes in zones `a` and `b`, and the classes `fast` (provisioned on first consumer), `local` (bound to
/// existing volumes on first consumer) and `now` (immediate binding).
fn cluster() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, zone) in [("n1", "a"), ("n2", "b")] {
        let labels = value!({"topology.kubernetes.io/zone": zone, "host": name});
        let object = value!({"metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}});
        snapshot.set_node(&Node::new(&object).unwrap());
    }
    let class = |provisioner: &str, mode: &str| value!({"provisioner": provisioner, "volumeBindingMode": mode});
    for (name, object) in [
        ("fast", class("csi.example", "WaitForFirstConsumer")),
        ("local", class(crate::storage::NO_PROVISIONER, "WaitForFirstConsumer")),
        ("now", class("csi.example", "Immediate")),
    ] {
        assert!(snapshot.storage.set_class(&name.into(), Some(&object)));
    }
    snapshot
}

fn claim(snapshot: &mut Snapshot, name: &str, class: &str, more: &Value) {
    let mut spec = value!({"storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "5Gi"}}});
    let mut annotations = Value::object();
    for (field, value) in more.as_object().unwrap().iter() {
        match field {
            "selected" => {
                annotations.as_object_mut().unwrap().insert("volume.kubernetes.io/selected-node", value.clone());
            }
            "volumeName" => {
                annotations.as_object_mut().unwrap().insert("pv.kubernetes.io/bind-completed", "yes");
                spec.as_object_mut().unwrap().insert(field, value.clone());
            }
            _ => drop(spec.as_object_mut().unwrap().insert(field, value.clone())),
        }
    }
    let object = value!({"metadata": {"namespace": "ns", "name": name, "uid": name, "annotations": annotations},
        "spec": spec});
    snapshot.storage.set_claim(&Key::new("ns", name), Some(&object));
}

fn volume(snapshot: &mut Snapshot, name: &str, size: &str, host: &str, more: &Value) {
    let term = value!({"matchExpressions": [{"key": "host", "operator": "In", "values": [host]}]});
    let mut spec = value!({"storageClassName": "local", "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}});
    let mut labels = Value::object();
    for (field, value) in more.as_object().unwrap().iter() {
        let target = if field.contains('/') { &mut labels } else { &mut spec };
        target.as_object_mut().unwrap().insert(field, value.clone());
    }
    let object = value!({"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"phase": "Available"}});
    snapshot.storage.set_volume(&name.into(), Some(&object));
}

fn pod(claims: &[&str]) -> Pod {
    let volume = |name: &&str| value!({"name": (*name), "persistentVolumeClaim": {"claimName": (*name)}});
    let volumes = Value::Array(claims.iter().map(volume).collect());
    let object = value!({"metadata": {"name": "p", "namespace": "ns", "uid": "p"},
        "spec": {"volumes": volumes, "containers": [{"name": "c"}]}});
    Pod::new(&object).unwrap()
}

/// Returns the chosen node, or the start of the message.
fn outcome(snapshot: &mut Snapshot, pod: &Pod) -> String {
    match schedule(snapshot, pod, &Profile::default(), Context::default()).decision {
        Decision::Bind { node } => node.to_string(),
        Decision::CallExtenders(_) => "asks".to_owned(),
        Decision::Unschedulable { message, .. } | Decision::Preempt { message, .. } | Decision::Failed { message } => {
            let from = message.find(": ").map_or(0, |at| at + 2);
            message[from..].split(". ").next().unwrap_or_default().to_owned()
        }
    }
}

#[test]
fn unready_claims_are_reported_before_filtering_nodes() {
    let mut snapshot = cluster();
    claim(&mut snapshot, "now", "now", &value!({}));
    claim(&mut snapshot, "none", "nowhere", &value!({}));
    let mut check = |claims: &[&str], expect: &str| assert_eq!(outcome(&mut snapshot, &pod(claims)), expect);
    check(&["gone"], "persistentvolumeclaim \"gone\" not found");
    check(&["now"], "pod has unbound immediate PersistentVolumeClaims");
    check(&["none"], "storageclass.storage.k8s.io \"nowhere\" not found");
}

#[test]
fn bound_claim_restricts_its_pod_to_nodes_of_the_volume() {
    let mut snapshot = cluster();
    volume(&mut snapshot, "pv", "5Gi", "n2", &value!({}));
    claim(&mut snapshot, "c", "local", &value!({"volumeName": "pv"}));
    assert_eq!(outcome(&mut snapshot, &pod(&["c"])), "n2");
    volume(&mut snapshot, "pv", "5Gi", "n3", &value!({}));
    assert_eq!(outcome(&mut snapshot, &pod(&["c"])), "2 node(s) didn't match PersistentVolume's node affinity");
    snapshot.storage.set_volume(&"pv".into(), None);
    assert_eq!(
        outcome(&mut snapshot, &pod(&["c"])),
        "2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    );
}

#[test]
fn smallest_matching_volume_is_bound_to_one_claim_only() {
    let mut snapshot = cluster();
    for (name, size) in [("small", "1Gi"), ("large", "50Gi"), ("right", "6Gi")] {
        volume(&mut snapshot, name, size, "n1", &value!({}));
    }
    for name in ["c", "d", "e"] {
        claim(&mut snapshot, name, "local", &value!({}));
    }
    let both = pod(&["c", "d"]);
    assert_eq!(outcome(&mut snapshot, &both), "n1");
    let node = snapshot.node("n1").unwrap();
    let plan = plan(&snapshot, &both, node);
    let key = |name: &str| Key::new("ns", name);
    assert_eq!(plan.bind, [("right".into(), key("c")), ("large".into(), key("d"))]);
    assert_eq!(outcome(&mut snapshot, &pod(&["e"])), "n1");
    snapshot.storage.assume(&plan, "n1");
    let expected = "2 node(s) didn't find available persistent volumes to bind";
    assert_eq!(outcome(&mut snapshot, &pod(&["e"])), expected);
    snapshot.storage.revert_assumed(&plan);
    assert_eq!(outcome(&mut snapshot, &pod(&["e"])), "n1");
}

#[test]
fn prebound_volume_is_used_only_by_its_claim() {
    let mut snapshot = cluster();
    let reference = value!({"claimRef": {"namespace": "ns", "name": "c"}});
    volume(&mut snapshot, "kept", "50Gi", "n2", &reference);
    volume(&mut snapshot, "free", "6Gi", "n1", &value!({}));
    claim(&mut snapshot, "c", "local", &value!({}));
    claim(&mut snapshot, "d", "local", &value!({}));
    assert_eq!(outcome(&mut snapshot, &pod(&["d"])), "n1");
    let node = snapshot.node("n2").unwrap();
    assert_eq!(plan(&snapshot, &pod(&["c"]), node).bind[0].0, "kept");
}

#[test]
fn volumes_are_provisioned_where_topology_and_capacity_allow() {
    let mut snapshot = cluster();
    claim(&mut snapshot, "c", "fast", &value!({}));
    let node = snapshot.node("n1").unwrap();
    snapshot.prepare(&pod(&["c"]), std::iter::empty());
    assert_eq!(plan(&snapshot, &pod(&["c"]), node).provision, [Key::new("ns", "c")]);
    let driver = value!({"spec": {"storageCapacity": true}});
    snapshot.storage.set_driver(&"csi.example".into(), Some(&driver));
    assert_eq!(outcome(&mut snapshot, &pod(&["c"])), "2 node(s) did not have enough free storage");
    let capacity = |size: &str| value!({"storageClassName": "fast", "capacity": size, "nodeTopology": {"matchLabels": {"host": "n2"}}});
    snapshot.storage.set_capacity(&Key::new("x", "r"), Some(&capacity("4Gi")));
    assert_eq!(outcome(&mut snapshot, &pod(&["c"])), "2 node(s) did not have enough free storage");
    snapshot.storage.set_capacity(&Key::new("x", "r"), Some(&capacity("5Gi")));
    assert_eq!(outcome(&mut snapshot, &pod(&["c"])), "n2");
    let topology = value!([{"matchLabelExpressions": [{"key": "host", "values": ["n1"]}]}]);
    let class = value!({"provisioner": "csi.example", "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": topology});
    snapshot.storage.set_class(&"fast".into(), Some(&class));
    assert_eq!(
        outcome(&mut snapshot, &pod(&["c"])),
        "1 node(s) did not have enough free storage, 1 node(s) didn't find available persistent volumes to bind"
    );
}

#[test]
fn selected_node_of_a_claim_is_retained() {
    let mut snapshot = cluster();
    claim(&mut snapshot, "c", "fast", &value!({"selected": "n2"}));
    assert_eq!(outcome(&mut snapshot, &pod(&["c"])), "n2");
    let selected = Plan { bind: Vec::new(), provision: vec![Key::new("ns", "d")] };
    claim(&mut snapshot, "d", "fast", &value!({}));
    snapshot.storage.assume(&selected, "n1");
    assert_eq!(outcome(&mut snapshot, &pod(&["d"])), "n1");
}

#[test]
fn volume_zone_restricts_its_pod() {
    let mut snapshot = cluster();
    let zone = value!({"topology.kubernetes.io/zone": "b__c", "nodeAffinity": null});
    volume(&mut snapshot, "pv", "5Gi", "n1", &zone);
    claim(&mut snapshot, "c", "local", &value!({"volumeName": "pv"}));
    assert_eq!(outcome(&mut snapshot, &pod(&["c"])), "n2");
    volume(&mut snapshot, "pv", "5Gi", "n1", &value!({"topology.kubernetes.io/zone": "x", "nodeAffinity": null}));
    assert_eq!(outcome(&mut snapshot, &pod(&["c"])), "2 node(s) had no available volume zone");
}

#[test]
fn read_write_once_pod_claim_is_used_by_one_pod() {
    let mut snapshot = cluster();
    volume(&mut snapshot, "pv", "5Gi", "n1", &value!({"nodeAffinity": null}));
    claim(&mut snapshot, "c", "local", &value!({"volumeName": "pv", "accessModes": ["ReadWriteOncePod"]}));
    let mut first = pod(&["c"]);
    first.name = "first".into();
    snapshot.assume(&first, "n1");
    let expected = "2 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
    assert_eq!(outcome(&mut snapshot, &pod(&["c"])), expected);
    let important = Pod { priority: 9, ..pod(&["c"]) };
    let decision = schedule(&mut snapshot, &important, &Profile::default(), Context::default()).decision;
    assert!(matches!(decision, Decision::Preempt { .. }), "{decision:?}");
    snapshot.remove_assumed_pod(first.id());
    assert_eq!(outcome(&mut snapshot, &pod(&["c"])), "n1");
}

#[test]
fn disk_is_shared_only_read_only() {
    let disk = |name: &str, read_only: bool| {
        let volume = value!({"name": "d", "gcePersistentDisk": {"pdName": "disk", "readOnly": read_only}});
        let spec = value!({"volumes": [volume], "nodeSelector": {"host": "n1"}});
        Pod::new(&value!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec})).unwrap()
    };
    let mut snapshot = cluster();
    snapshot.assume(&disk("reader", true), "n1");
    assert_eq!(outcome(&mut snapshot, &disk("other", true)), "n1");
    assert!(outcome(&mut snapshot, &disk("writer", false)).contains("1 node(s) had no available disk"));
}

#[test]
fn node_attach_limit_is_enforced() {
    let mut snapshot = cluster();
    let limits = value!({"spec": {"drivers": [{"name": "csi.example", "allocatable": {"count": 1}}]}});
    for node in ["n1", "n2"] {
        snapshot.storage.set_limits(&node.into(), Some(&limits));
    }
    for name in ["c", "d"] {
        claim(&mut snapshot, name, "fast", &value!({}));
    }
    let mut first = pod(&["c"]);
    first.name = "first".into();
    snapshot.assume(&first, "n1");
    assert_eq!(outcome(&mut snapshot, &pod(&["d"])), "n2");
    assert_eq!(outcome(&mut snapshot, &pod(&["c", "d"])), "2 node(s) exceed max volume count");
    let volume = value!({"spec": {"csi": {"driver": "csi.example", "volumeHandle": "h"}}});
    snapshot.storage.set_volume(&"left".into(), Some(&volume));
    let attachment = value!({"spec": {"nodeName": "n2", "source": {"persistentVolumeName": "left"}}});
    assert!(!snapshot.storage.set_attachment(&"a".into(), Some(&attachment)));
    let full = "2 node(s) exceed max volume count";
    assert_eq!(outcome(&mut snapshot, &pod(&["d"])), full, "a volume counts until it is detached");
    assert!(snapshot.storage.set_attachment(&"a".into(), None));
    assert_eq!(outcome(&mut snapshot, &pod(&["d"])), "n2");
}
