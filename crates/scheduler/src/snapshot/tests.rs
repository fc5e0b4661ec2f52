use apimachinery::{Value, value};

use super::*;

fn node(name: &str, zone: &str) -> Node {
    let labels = value!({"zone": zone, "topology.kubernetes.io/zone": zone});
    Node::new(&value!({
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "4", "pods": "10"}, "images": [{"names": ["a:1"], "sizeBytes": 7}]}
    }))
    .unwrap()
}

fn pod(name: &str, node: &str) -> Pod {
    let terms = value!([{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let anti: Value = value!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
    Pod::new(&value!({
        "metadata": {"name": name, "namespace": "ns", "labels": {"app": "web"}},
        "spec": {
            "nodeName": node, "affinity": {"podAntiAffinity": anti},
            "containers": [{"resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 80}]}]
        }
    }))
    .unwrap()
}

/// Returns the number of pods with the term, and of the class, in the node's `zone`.
fn by_zone(snapshot: &Snapshot, node: &str) -> (u32, u32) {
    let id = snapshot.names[node];
    let key = snapshot.topology().find("zone").unwrap();
    let domain = snapshot.topology().key(key).domain(id);
    let terms = snapshot.terms().map(|(_, _, counts)| counts.at(domain)).sum();
    let classes = snapshot.classes().map(|(class, _)| {
        snapshot.class_by_domain(class, key).filter(|(at, _)| *at == domain).map(|(_, number)| number).sum::<u32>()
    });
    (terms, classes.sum())
}

#[test]
fn pods_are_counted_per_domain_in_any_order_of_events() {
    let mut snapshot = Snapshot::default();
    snapshot.set_pod(&pod("early", "n1"));
    snapshot.set_node(&node("n1", "a"));
    snapshot.set_node(&node("n2", "a"));
    snapshot.set_node(&node("n3", "b"));
    snapshot.set_pod(&pod("late", "n2"));
    snapshot.assume(&pod("assumed", ""), "n3");
    assert_eq!((by_zone(&snapshot, "n1"), by_zone(&snapshot, "n3")), ((2, 2), (1, 1)));
    snapshot.set_node(&node("n2", "b"));
    assert_eq!((by_zone(&snapshot, "n1"), by_zone(&snapshot, "n3")), ((1, 1), (2, 2)));
    snapshot.remove_assumed_pod(PodId::new("ns", "assumed"));
    snapshot.remove_assumed_pod(PodId::new("ns", "late"));
    assert_eq!(by_zone(&snapshot, "n3"), (1, 1), "only assumed pods are removed");
}

#[test]
fn snapshot_is_empty_after_all_objects_are_removed() {
    let mut snapshot = Snapshot::default();
    snapshot.set_node(&node("n1", "a"));
    snapshot.set_pod(&pod("p", "n1"));
    snapshot.set_pod(&pod("p", "n1"));
    assert_eq!(snapshot.usage(snapshot.names["n1"]).requested.cpu_milli, 1000);
    snapshot.remove_node("n1");
    assert_eq!(snapshot.node("n1"), None);
    snapshot.remove_pod(PodId::new("ns", "p"));
    assert_eq!(snapshot.names.len() + snapshot.ids.len(), 0);
    assert_eq!(snapshot.classes().count() + snapshot.terms().count() + snapshot.symbols.iter().count(), 0);
    assert_eq!(snapshot.usage, [Usage::default()]);
    assert!(snapshot.image_nodes("a:1").is_empty());
}

#[test]
fn node_order_alternates_between_zones() {
    let mut snapshot = Snapshot::default();
    for (name, zone) in [("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", "c"), ("n5", "a")] {
        snapshot.set_node(&node(name, zone));
    }
    snapshot.prepare(&pod("p", ""), std::iter::empty());
    let names: Vec<_> = snapshot.nodes().iter().map(|id| snapshot.node_name(*id).as_str()).collect();
    assert_eq!(names, ["n1", "n3", "n4", "n2", "n5"]);
}

#[test]
fn memory_per_pod_and_node_is_bounded() {
    // In addition to its record, a pod has an entry in the ID map, one in the list of its node and one in each count.
    let pod =
        size_of::<Option<AssignedPod>>() + (size_of::<(PodId, u32)>() + 1) * 8 / 7 + 4 + 3 * size_of::<(u32, u32)>();
    assert!(pod <= 150, "{pod} bytes");
    let (labels, images) = (30, 100);
    let node = size_of::<Record>() + size_of::<Offer>() + size_of::<Usage>() + labels * 8 + images * (4 + 16);
    assert!(node <= 4096, "{node} bytes");
}
