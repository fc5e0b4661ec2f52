//! Eviction tests, sequential and concurrent.

use std::sync::Arc;

use apimachinery::{Value, value};

use crate::cluster::Cluster;

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGET: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

async fn running(cluster: &Cluster, name: &str) {
    let pod = value!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "one", "containers": [{"name": "c", "image": "i"}]},
    });
    cluster.create(PODS, pod).await;
    let status = value!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    cluster.set_status(&format!("{PODS}/{name}"), status).await;
}

async fn budget(cluster: &Cluster, allowed: i64) {
    let budget = value!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    cluster.create(BUDGET, budget).await;
    let status = value!({
        "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 4, "desiredHealthy": 1, "expectedPods": 4,
    });
    cluster.set_status(&format!("{BUDGET}/b"), status).await;
}

async fn evict(cluster: &Cluster, name: &str, query: &str) -> (u16, Value) {
    let eviction = value!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    cluster.call("POST", &format!("{PODS}/{name}/eviction{query}"), Some(eviction)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn allowed_eviction_deletes_the_pod_and_updates_the_budget() {
    let cluster = Cluster::start().await;
    budget(&cluster, 1).await;
    for name in ["a", "b"] {
        running(&cluster, name).await;
    }
    let (code, response) = evict(&cluster, "a", "?dryRun=All").await;
    assert_eq!(code, 201, "{response}");
    assert_eq!(cluster.call("GET", &format!("{BUDGET}/b"), None).await.1["status"]["disruptionsAllowed"], 1.into());
    let (code, response) = evict(&cluster, "a", "").await;
    assert_eq!((code, response["status"].as_str()), (201, Some("Success")), "{response}");
    let pod = cluster.call("GET", &format!("{PODS}/a"), None).await.1;
    assert!(pod.at(&["metadata", "deletionTimestamp"]).is_some(), "{pod}");
    let marked =
        pod["status"]["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "DisruptionTarget".into());
    assert_eq!(marked.unwrap()["reason"], "EvictionByEvictionAPI".into());
    let spent = cluster.call("GET", &format!("{BUDGET}/b"), None).await.1;
    assert_eq!(spent["status"]["disruptionsAllowed"], 0.into());
    assert!(spent.at(&["status", "disruptedPods", "a"]).is_some(), "{spent}");
    let (code, response) = evict(&cluster, "b", "").await;
    assert_eq!(code, 429, "{response}");
    assert_eq!(response["details"]["causes"][0]["reason"], "DisruptionBudget".into());
    assert_eq!(
        response["details"]["causes"][0]["message"],
        "The disruption budget b needs 1 healthy pods and has 4 currently".into()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_evictions_do_not_exceed_the_disruption_budget() {
    let cluster = Arc::new(Cluster::start().await);
    budget(&cluster, 3).await;
    let names: Vec<String> = (0..10).map(|number| format!("p{number}")).collect();
    for name in &names {
        running(&cluster, name).await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for name in names {
        let cluster = Arc::clone(&cluster);
        tasks.spawn(async move { evict(&cluster, &name, "").await.0 });
    }
    let mut codes = tasks.join_all().await;
    codes.sort_unstable();
    assert_eq!(codes, [201, 201, 201, 429, 429, 429, 429, 429, 429, 429]);
    let pods = cluster.call("GET", PODS, None).await.1;
    let going =
        pods["items"].as_array().unwrap().iter().filter(|pod| pod.at(&["metadata", "deletionTimestamp"]).is_some());
    assert_eq!(going.count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn eviction_requires_an_existing_pod_that_matches_its_preconditions() {
    let cluster = Cluster::start().await;
    running(&cluster, "a").await;
    assert_eq!(evict(&cluster, "none", "").await.0, 404);
    let other = value!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "b"}});
    let (code, response) = cluster.call("POST", &format!("{PODS}/a/eviction"), Some(other)).await;
    assert_eq!((code, response["message"].as_str()), (400, Some("name in URL does not match name in Eviction object")));
    let late = value!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"},
        "deleteOptions": {"preconditions": {"resourceVersion": "1"}},
    });
    assert_eq!(cluster.call("POST", &format!("{PODS}/a/eviction"), Some(late)).await.0, 409);
    assert_eq!(evict(&cluster, "a", "").await.0, 201, "no PodDisruptionBudget selects the pod");
}
