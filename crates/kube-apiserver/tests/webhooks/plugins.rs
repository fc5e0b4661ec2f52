//! Tests of admission plugins with side effects, and of kinds that are computed rather than stored.

use std::sync::Arc;

use apimachinery::{Value, value};
use tokio::task::JoinSet;

use crate::server::Cluster;

fn pod(name: &str) -> Value {
    value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_pod_creations_do_not_exceed_the_quota() {
    let cluster = Arc::new(Cluster::start().await);
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = value!({"pods": "10"});
    let quota = value!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": (hard.clone())}});
    cluster.post(quotas, &quota).await.ok();
    // No quota controller counts the existing objects here.
    let status = value!({"status": {"hard": hard, "used": {"pods": "0"}}});
    cluster.merge(&format!("{quotas}/q/status"), &status).await.ok();
    let mut creating = JoinSet::new();
    for number in 0..40 {
        let cluster = Arc::clone(&cluster);
        creating
            .spawn(async move { cluster.post("/api/v1/namespaces/default/pods", &pod(&format!("p{number}"))).await });
    }
    let (mut created, mut rejected) = (0, 0);
    while let Some(response) = creating.join_next().await {
        let response = response.unwrap();
        match response.code {
            201 => created += 1,
            _ => {
                let expected = "is forbidden: exceeded quota: q, requested: pods=1, used: pods=10, limited: pods=10";
                assert!(
                    response.error_message().starts_with("403 ") && response.error_message().ends_with(expected),
                    "{}",
                    response.error_message()
                );
                rejected += 1;
            }
        }
    }
    assert_eq!((created, rejected), (10, 30));
    let quota = cluster.get(&format!("{quotas}/q")).await.ok();
    assert_eq!(quota["status"]["used"]["pods"], value!("10"));
    let pods = cluster.get("/api/v1/namespaces/default/pods").await.ok();
    assert_eq!(pods["items"].as_array().map(<[Value]>::len), Some(10));
}

#[tokio::test]
async fn namespace_auto_provision_creates_the_namespace() {
    let entry = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let plain = Cluster::start().await;
    let message = plain.post("/api/v1/namespaces/new/configmaps", &entry).await.error_message();
    assert_eq!(message, "404 namespaces \"new\" not found");
    let cluster = Cluster::with(|config| config.admission.enable.push("NamespaceAutoProvision".to_owned())).await;
    let rehearsed = cluster.post("/api/v1/namespaces/new/configmaps?dryRun=All", &entry).await.error_message();
    assert_eq!(rehearsed, "404 namespaces \"new\" not found");
    cluster.post("/api/v1/namespaces/new/configmaps", &entry).await.ok();
    let namespace = cluster.get("/api/v1/namespaces/new").await.ok();
    assert_eq!(namespace["status"]["phase"], value!("Active"));
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], value!("new"));
}

#[tokio::test]
async fn component_statuses_probe_the_components_when_read() {
    let cluster = Cluster::start().await;
    let listed = cluster.get("/api/v1/componentstatuses").await;
    assert_eq!(listed.warnings(), ["v1 ComponentStatus is deprecated in v1.19+"]);
    let list = listed.ok();
    let names: Vec<&str> =
        list["items"].as_array().unwrap().iter().map(|item| item.str_at(&["metadata", "name"]).unwrap()).collect();
    assert_eq!(names, ["controller-manager", "etcd-0", "scheduler"]);
    let store = cluster.get("/api/v1/componentstatuses/etcd-0").await.ok();
    assert_eq!(store["conditions"], value!([{"type": "Healthy", "status": "True", "message": "ok"}]));
    let unknown = cluster.get("/api/v1/componentstatuses/nobody").await.error_message();
    assert_eq!(unknown, "500 Component not found: nobody");
    let selected = cluster.get("/api/v1/componentstatuses?fieldSelector=metadata.name%3Detcd-0").await.ok();
    assert_eq!(selected["items"].as_array().map(<[Value]>::len), Some(1));
}

#[tokio::test]
async fn dry_run_claims_no_node_port_and_empty_lists_are_stored_as_null() {
    let cluster = Cluster::start().await;
    let service = value!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let rehearsed = cluster.post("/api/v1/namespaces/default/services?dryRun=All", &service).await.ok();
    assert_eq!(rehearsed["spec"]["ports"][0]["nodePort"], value!(32769));
    let made = cluster.post("/api/v1/namespaces/default/services", &service).await.ok();
    let port = made["spec"]["ports"][0]["nodePort"].as_int().unwrap();
    assert!((30000..=32767).contains(&port), "{port}");
    let role =
        value!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": []});
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    assert_eq!(cluster.post(roles, &role).await.ok().get("rules"), Some(&Value::Null));
    assert_eq!(cluster.get(&format!("{roles}/r")).await.ok().get("rules"), Some(&Value::Null));
}

#[tokio::test]
async fn metadata_responses_omit_annotations_that_represent_fields() {
    let cluster = Cluster::start().await;
    let set = value!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let sets = "/apis/apps/v1/namespaces/default/daemonsets";
    let made = cluster.post(sets, &set).await.ok();
    assert_eq!(made["metadata"]["annotations"], value!({"deprecated.daemonset.template.generation": "1"}));
    let partial =
        cluster.get_as(&format!("{sets}/d"), "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").await;
    assert_eq!(partial.ok()["metadata"].get("annotations"), None);
    let table = cluster.get_as(sets, "application/json;as=Table;g=meta.k8s.io;v=v1").await.ok();
    assert_eq!(table["rows"][0]["object"]["metadata"].get("annotations"), None);
}
