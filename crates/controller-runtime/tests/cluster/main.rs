//! Controllers against the real API server and store, in-process and over HTTPS, with simulated nodes.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod cluster;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::resources::CONFIG_MAPS;
use apimachinery::meta::Meta;
use apimachinery::{Key, Value, value};
use client::cache::Settings as Persistence;
use client::{DeleteOptions, ListOptions, Patch, Target, WriteOptions};
use component_base::election::{Election, Settings};
use controller::kinds;
use controller_runtime::Caches;

use cluster::{Cluster, nodes};

fn deployment(replicas: i64, image: &str) -> Value {
    value!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": image}], "terminationGracePeriodSeconds": 0}}}})
}

async fn create(cluster: &Cluster, replicas: i64) {
    let target = Target::within(&kinds::DEPLOYMENTS, "default");
    cluster.admin().create(&target, &deployment(replicas, "v1"), &WriteOptions::default()).await.unwrap();
}

fn number(object: &Value, field: &str) -> i64 {
    object.int_at(&["status", field]).unwrap_or(0)
}

/// Whether a Deployment's rollout is complete.
fn is_rolled_out(deployment: &Value, replicas: i64) -> bool {
    let meta = Meta::of(deployment);
    number(deployment, "observedGeneration") == meta.generation()
        && ["replicas", "updatedReplicas", "availableReplicas"]
            .iter()
            .all(|field| number(deployment, field) == replicas)
        && number(deployment, "terminatingReplicas") == 0
}

/// Waits until the rollout of this or a later generation of the Deployment is complete.
async fn wait_for_rollout(cluster: &Cluster, generation: i64, replicas: i64) -> Value {
    let key = Key::new("default", "web");
    cluster
        .until("deployments.apps", "settled", |all| {
            all.get(&key).is_some_and(|it| Meta::of(it).generation() >= generation && is_rolled_out(it, replicas))
        })
        .await
        .get(&key)
        .unwrap()
        .clone()
}

/// Waits until the condition holds for a ConfigMap of the namespace `default` in the cache.
async fn wait_for_cached(caches: &Caches, name: &str, condition: impl Fn(Option<&Value>) -> bool) {
    let mut reader = caches.reader(CONFIG_MAPS).unwrap().clone();
    let waiting = async {
        while !condition(reader.snapshot().objects.get(&Key::new("default", name))) {
            reader.advanced().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("the cache receives the change");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_process_caches_share_objects_and_remote_caches_have_copies() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let follow = |client| Caches::start(client, &Persistence::default(), [CONFIG_MAPS]).unwrap();
    let map = |data: &str| {
        value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map", "namespace": "default"},
            "data": {"is": data}})
    };
    let target = Target::within(&kinds::CONFIG_MAPS, "default");
    let named = Target::named(&kinds::CONFIG_MAPS, "default", "map");
    // One cache starts before the object is created, and one afterwards.
    let early = follow(&admin);
    admin.create(&target, &map("made"), &WriteOptions::default()).await.unwrap();
    let (late, remote) = (follow(&admin), follow(&cluster.remote()));
    for data in ["made", "changed"] {
        let response = admin.update(&named, &map(data), &WriteOptions::default()).await.unwrap();
        assert_eq!(
            response,
            cluster.remote().get(&named).await.unwrap(),
            "the response in process and over the network"
        );
        for caches in [&early, &late, &remote] {
            wait_for_cached(caches, "map", |object| object.is_some_and(|object| object["data"]["is"] == data.into()))
                .await;
        }
        let [early, late, remote] = [&early, &late, &remote].map(|caches| {
            let objects = caches.reader(CONFIG_MAPS).unwrap().snapshot().objects;
            Arc::clone(objects.entry(&Key::new("default", "map")).unwrap())
        });
        assert!(Arc::ptr_eq(&early, &late), "the lease has two holders");
        assert_eq!((&early.value, early.revision), (&remote.value, remote.revision));
        assert!(early.value["metadata"].get("managedFields").is_none());
    }
    admin.delete(&named, &DeleteOptions::default()).await.unwrap();
    for caches in [&early, &late, &remote] {
        wait_for_cached(caches, "map", |object| object.is_none()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_is_rolled_out_scaled_and_rolled_back() {
    let cluster = Cluster::start().await;
    let _nodes = nodes(cluster.admin());
    let _manager = cluster.manage(cluster.admin());
    create(&cluster, 3).await;
    wait_for_rollout(&cluster, 1, 3).await;
    let target = Target::named(&kinds::DEPLOYMENTS, "default", "web");
    for (image, replicas, revision) in [("v2", 3, "2"), ("v2", 5, "2"), ("v1", 5, "3")] {
        let change = value!({"spec": {"replicas": replicas,
            "template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
        let patch = Patch::Strategic(change);
        let patched = cluster.admin().patch(&target, &patch, &WriteOptions::default()).await.unwrap();
        let deployment = wait_for_rollout(&cluster, Meta::of(&patched).generation(), replicas).await;
        assert_eq!(Meta::of(&deployment).annotation("deployment.kubernetes.io/revision"), Some(revision));
        let progress = controllers::condition::find(&deployment, "Progressing").unwrap();
        assert_eq!(progress["reason"], "NewReplicaSetAvailable".into());
    }
    let sets = cluster.admin().list(&Target::all(&kinds::REPLICA_SETS), &ListOptions::default()).await.unwrap();
    assert_eq!(sets.items.len(), 2, "a repeated template reuses its ReplicaSet");
    let pods = cluster.admin().list(&Target::all(&kinds::PODS), &ListOptions::default()).await.unwrap();
    assert!(pods.items.iter().all(|pod| pod["spec"]["containers"][0]["image"] == "v1".into()));
    let events = cluster.admin().list(&Target::all(&kinds::EVENTS), &ListOptions::default()).await.unwrap();
    assert!(events.items.iter().any(|event| event["reason"] == "ScalingReplicaSet".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_is_rolled_out_over_https() {
    let cluster = Cluster::start().await;
    let remote = cluster.remote();
    let _nodes = nodes(remote.clone());
    let _manager = cluster.manage(remote);
    create(&cluster, 3).await;
    wait_for_rollout(&cluster, 1, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_pods_are_replaced_and_a_thousand_are_created_quickly() {
    let cluster = Cluster::start().await;
    let _nodes = nodes(cluster.admin());
    let _manager = cluster.manage(cluster.admin());
    let start = Instant::now();
    create(&cluster, 1000).await;
    cluster.until("pods", "a thousand pods", |pods| pods.len() == 1000).await;
    println!("1,000 pods created after {:?}", start.elapsed());
    wait_for_rollout(&cluster, 1, 1000).await;
    println!("1,000 pods available after {:?}", start.elapsed());
    let pods = cluster.admin().list(&Target::all(&kinds::PODS), &ListOptions::default()).await.unwrap();
    for pod in pods.items.iter().take(10) {
        let options = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() };
        cluster.admin().delete(&Target::object(&kinds::PODS, &Key::of(pod)), &options).await.unwrap();
    }
    let deleted_keys: Vec<Key> = pods.items.iter().take(10).map(Key::of).collect();
    cluster
        .until("pods", "replaced", |pods| pods.len() == 1000 && deleted_keys.iter().all(|key| pods.get(key).is_none()))
        .await;
    wait_for_rollout(&cluster, 1, 1000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_leader_continues_without_creating_duplicates() {
    let cluster = Cluster::start().await;
    let _nodes = nodes(cluster.admin());
    let lead = |identity: &'static str| {
        let settings = Settings {
            lease_duration: Duration::from_secs(2),
            renew_deadline: Duration::from_secs(1),
            retry_period: Duration::from_millis(200),
            ..Settings::new(Key::new("kube-system", "kcm"), identity)
        };
        let manager = cluster.candidate(cluster.admin());
        let election = Election::new(cluster.admin(), settings);
        tokio::spawn(async move {
            election.lead(|| manager.run(), std::future::pending::<()>()).await;
        })
    };
    let first = lead("first");
    cluster.until("leases.coordination.k8s.io", "led", |leases| !leases.is_empty()).await;
    let second = lead("second");
    create(&cluster, 400).await;
    cluster.until("pods", "under way", |pods| pods.len() > 20).await;
    first.abort();
    wait_for_rollout(&cluster, 1, 400).await;
    second.abort();
    let lease = cluster.admin().get(&Target::named(&kinds::LEASES, "kube-system", "kcm")).await.unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "second".into());
    let made = cluster.seen_pods();
    assert_eq!(made, 400, "number of pods observed");
}
