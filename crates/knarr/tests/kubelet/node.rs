//! The pods that a node does not take.

use machinery::value;

use crate::cluster::*;

#[tokio::test(flavor = "multi_thread")]
async fn pods_for_another_operating_system_are_rejected() {
    let Some(cluster) = cluster().await else { return };
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
