//! The node's events and lease, and rejected pods.

use apimachinery::{Value, value};

use crate::cluster::*;

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_start_and_node_conditions_are_events() {
    let cluster = cluster().await;
    for (reason, message) in [
        ("Starting", "Starting kubelet."),
        ("NodeHasSufficientMemory", "Node node-1 status is now: NodeHasSufficientMemory"),
        ("NodeHasNoDiskPressure", "Node node-1 status is now: NodeHasNoDiskPressure"),
        ("NodeHasSufficientPID", "Node node-1 status is now: NodeHasSufficientPID"),
    ] {
        let event = cluster.event(&format!("{reason}: {message}")).await;
        let involved =
            ["kind", "name", "uid"].map(|field| event.str_at(&["involvedObject", field]).unwrap_or_default());
        assert_eq!(involved, ["Node", NODE, NODE], "{reason}");
        assert_eq!(event.str_at(&["source", "component"]), Some("kubelet"));
    }
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_lease_is_owned_by_its_node() {
    let cluster = cluster().await;
    let node = cluster.get(&NODES, NODE).await;
    let is_owned = |lease: &Value| {
        let owner = &lease["metadata"]["ownerReferences"][0];
        let text = |field: &str| owner.str_at(&[field]);
        (text("apiVersion"), text("kind"), text("name")) == (Some("v1"), Some("Node"), Some(NODE))
            && owner["uid"] == node["metadata"]["uid"]
    };
    cluster.wait_in(&LEASES, "kube-node-lease", NODE, "owned by its node", is_owned).await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_for_another_operating_system_are_rejected() {
    let cluster = cluster().await;
    let mut by_field = pod("field", "sleep 1000");
    set(&mut by_field, "os", value!({"name": "windows"}));
    let mut by_label = pod("label", "sleep 1000");
    by_label
        .get_mut("metadata")
        .unwrap()
        .as_object_mut()
        .unwrap()
        .insert("labels", value!({"kubernetes.io/os": "windows"}));
    for (pod, reason, message) in [
        (by_field, "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"),
        (
            by_label,
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ),
    ] {
        let failed = cluster.run(&pod, "rejected", |pod| phase(pod) == "Failed").await;
        assert_eq!(failed.str_at(&["status", "reason"]), Some(reason));
        assert_eq!(failed.str_at(&["status", "message"]), Some(message));
    }
    cluster.finish().await;
}
