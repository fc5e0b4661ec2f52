//! Cluster services around workloads: garbage collection, namespaces, quotas, endpoints, volumes, tokens, lost nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apimachinery::time::Duration;
use client::{DeleteOptions, Propagation, Target, WriteOptions};
use controller::Setup;
use controllers::{condition, node_lifecycle, root_ca, serviceaccount_token};

use super::*;

/// Returns a ConfigMap in the namespace `default`, with an optional owner.
fn map(name: &str, owner: Option<&Value>) -> Value {
    let reference = |owner: &Value| {
        let mut reference = controllers::adoption::reference(owner);
        reference.as_object_mut().expect("an object").insert("apiVersion", "v1");
        reference.as_object_mut().expect("an object").insert("kind", "ConfigMap");
        reference
    };
    let owners: Vec<Value> = owner.map(reference).into_iter().collect();
    value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default", "ownerReferences": owners}})
}

async fn delete(cluster: &Cluster, resource: &Resource, name: &str, propagation: Option<Propagation>) {
    let namespace = if resource.scope == apimachinery::meta::Scope::Cluster { "" } else { "default" };
    let options = DeleteOptions { propagation, ..DeleteOptions::default() };
    let deleted = cluster.admin().delete(&Target::named(resource, namespace, name), &options).await;
    deleted.unwrap_or_else(|error| panic!("{name} cannot be deleted: {error}"));
}

fn has(objects: &Objects, name: &str) -> bool {
    objects.get(&Key::new("default", name)).is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn propagation_policy_deletes_or_orphans_dependents() {
    let fixture = fixture(1, &[&kinds::CONFIG_MAPS]).await;
    let cluster = &fixture.cluster;
    for kind in ["background", "foreground", "orphan"] {
        let owner = cluster.create(&kinds::CONFIG_MAPS, &map(kind, None)).await;
        let child = cluster.create(&kinds::CONFIG_MAPS, &map(&format!("{kind}-child"), Some(&owner))).await;
        cluster.create(&kinds::CONFIG_MAPS, &map(&format!("{kind}-grandchild"), Some(&child))).await;
    }
    let is_deleted = |kind: &'static str| {
        move |all: &Objects| !["", "-child", "-grandchild"].iter().any(|end| has(all, &format!("{kind}{end}")))
    };
    delete(cluster, &kinds::CONFIG_MAPS, "background", Some(Propagation::Background)).await;
    cluster.until(&kinds::CONFIG_MAPS, "collected", is_deleted("background")).await;
    delete(cluster, &kinds::CONFIG_MAPS, "foreground", Some(Propagation::Foreground)).await;
    let in_order = |all: &Objects| {
        let there = ["foreground", "foreground-child", "foreground-grandchild"].map(|name| has(all, name));
        assert!(there.is_sorted_by(|older, younger| *older || !*younger), "an owner went before: {there:?}");
        is_deleted("foreground")(all)
    };
    cluster.until(&kinds::CONFIG_MAPS, "collected", in_order).await;
    delete(cluster, &kinds::CONFIG_MAPS, "orphan", Some(Propagation::Orphan)).await;
    let orphaned = |all: &Objects| {
        let child = all.get(&Key::new("default", "orphan-child"));
        !has(all, "orphan") && child.is_some_and(|child| Meta::of(child).owner_references().next().is_none())
    };
    let left = cluster.until(&kinds::CONFIG_MAPS, "orphaned", orphaned).await;
    assert!(has(&left, "orphan-grandchild"));
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_deletion_removes_all_content_including_custom_resources() {
    let fixture = fixture(1, &[&kinds::NAMESPACES, &kinds::CUSTOM_RESOURCE_DEFINITIONS]).await;
    let cluster = &fixture.cluster;
    let widgets = Resource::namespaced("example.org", "v1", "widgets", "Widget");
    let schema = value!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let names = value!({"plural": "widgets", "kind": "Widget"});
    let version = value!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let definition = value!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]}});
    let create = |resource: Resource, namespace: &'static str, object: Value| async move {
        let target = Target::within(&resource, namespace);
        let created = cluster.admin().create(&target, &object, &WriteOptions::default()).await;
        created.unwrap_or_else(|error| panic!("{object}\nis refused: {error}"))
    };
    create(kinds::CUSTOM_RESOURCE_DEFINITIONS.clone(), "", definition).await;
    let key = Key::cluster("widgets.example.org");
    let established = |all: &Objects| {
        let condition = all.get(&key).and_then(|it| condition::find(it, "Established"));
        condition.is_some_and(|condition| condition.str_at(&["status"]) == Some("True"))
    };
    cluster.until(&kinds::CUSTOM_RESOURCE_DEFINITIONS, "established", established).await;
    create(
        kinds::NAMESPACES.clone(),
        "",
        value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "doomed"}}),
    )
    .await;
    for namespace in ["doomed", "default"] {
        let metadata = value!({"name": "w", "namespace": namespace});
        let widget = value!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": (metadata.clone())});
        create(widgets.clone(), namespace, widget).await;
        let map = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        create(kinds::CONFIG_MAPS.clone(), namespace, map).await;
    }
    delete(cluster, &kinds::NAMESPACES, "doomed", None).await;
    cluster.until(&kinds::NAMESPACES, "gone", |all| all.get(&Key::cluster("doomed")).is_none()).await;
    for resource in [&widgets, &kinds::CONFIG_MAPS] {
        let all = cluster.admin().list(&Target::all(resource), &client::ListOptions::default()).await.expect("listed");
        let places: Vec<&str> = all.items.iter().map(|it| Meta::of(it).namespace()).collect();
        assert!(places.contains(&"default") && !places.contains(&"doomed"), "{resource} {places:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_counts_usage_and_rejects_objects_above_the_limit() {
    let fixture = fixture(2, &[&kinds::RESOURCE_QUOTAS, &kinds::PODS, &kinds::REPLICA_SETS]).await;
    let cluster = &fixture.cluster;
    let most = Arc::new(AtomicUsize::new(0));
    let (seen, pods) = (Arc::clone(&most), cluster.reader(&kinds::PODS).clone());
    let notices = client::cache::ChangeQueue::new(1000);
    cluster.reader(&kinds::PODS).subscribe(&notices, move |_, _| {
        seen.fetch_max(pods.snapshot().objects.len(), Ordering::SeqCst);
    });
    let quota = value!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {"pods": "5", "configmaps": "9"}}});
    cluster.create(&kinds::RESOURCE_QUOTAS, &quota).await;
    let used = |pods: &'static str| move |it: &Value| it.str_at(&["status", "used", "pods"]) == Some(pods);
    wait_for_object(&fixture, &kinds::RESOURCE_QUOTAS, "q", used("0")).await;
    cluster.create(&kinds::REPLICA_SETS, &workload("ReplicaSet", "web", value!({"replicas": 0}))).await;
    for _ in 0..8 {
        cluster.patch(&kinds::REPLICA_SETS, "web", value!({"spec": {"replicas": 60}})).await;
        let failed = |it: &Value| number(it, "readyReplicas") == 5 && condition::find(it, "ReplicaFailure").is_some();
        let set = wait_for_object(&fixture, &kinds::REPLICA_SETS, "web", failed).await;
        let message =
            condition::find(&set, "ReplicaFailure").and_then(|it| it.str_at(&["message"])).unwrap_or_default();
        assert!(message.contains("exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5"), "{message}");
        wait_for_object(&fixture, &kinds::RESOURCE_QUOTAS, "q", used("5")).await;
        cluster.patch(&kinds::REPLICA_SETS, "web", value!({"spec": {"replicas": 1}})).await;
        wait_for_object(&fixture, &kinds::RESOURCE_QUOTAS, "q", used("1")).await;
    }
    assert_eq!(most.load(Ordering::SeqCst), 5, "pods at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_follow_readiness() {
    let fixture = fixture(2, &[&kinds::ENDPOINT_SLICES, &kinds::ENDPOINTS, &kinds::PODS]).await;
    let cluster = &fixture.cluster;
    let service = value!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    cluster.create(&kinds::SERVICES, &service).await;
    cluster.create(&kinds::REPLICA_SETS, &workload("ReplicaSet", "web", value!({"replicas": 3}))).await;
    let ready = |count: usize| {
        move |all: &Objects| {
            let slices = all.iter().filter(|it| Meta::of(&it.value).label("kubernetes.io/service-name") == Some("web"));
            let endpoints = slices.flat_map(|it| it.value["endpoints"].as_array().unwrap_or_default());
            endpoints.filter(|it| it["conditions"]["ready"] == true.into()).count() == count
        }
    };
    cluster.until(&kinds::ENDPOINT_SLICES, "full", ready(3)).await;
    let pods = cluster.until(&kinds::PODS, "made", |pods| pods.len() == 3).await;
    let one = pods.iter().next().expect("three pods").key.name.clone();
    let does = |what: &str| value!({"metadata": {"annotations": {"hollow.knarr.dev/does": what}}});
    cluster.patch(&kinds::PODS, &one, does("notready")).await;
    cluster.until(&kinds::ENDPOINT_SLICES, "without it", ready(2)).await;
    let apart = |it: &Value| {
        let subset = &it["subsets"][0];
        let count = |field: &str| subset[field].as_array().map_or(0, <[Value]>::len);
        (count("addresses"), count("notReadyAddresses")) == (2, 1)
    };
    wait_for_object(&fixture, &kinds::ENDPOINTS, "web", apart).await;
    cluster.patch(&kinds::PODS, &one, does("run")).await;
    cluster.until(&kinds::ENDPOINT_SLICES, "full again", ready(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_binds_the_smallest_fitting_volume_and_releases_it() {
    let fixture = fixture(1, &[&kinds::PERSISTENT_VOLUME_CLAIMS, &kinds::PERSISTENT_VOLUMES]).await;
    let cluster = &fixture.cluster;
    let is_free = |it: &Value| it.str_at(&["status", "phase"]) == Some("Available");
    // Created in this order, so that a free large volume implies that the fitting one is free.
    for (before, (name, size)) in [("fitting", "2Gi"), ("small", "1Gi"), ("large", "10Gi")].into_iter().enumerate() {
        let free = |all: &Objects| all.iter().filter(|it| is_free(&it.value)).count() == before;
        cluster.until(&kinds::PERSISTENT_VOLUMES, "available", free).await;
        let spec =
            value!({"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
        let volume = value!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec});
        let target = Target::all(&kinds::PERSISTENT_VOLUMES);
        cluster.admin().create(&target, &volume, &WriteOptions::default()).await.expect("a volume");
    }
    let free = |all: &Objects| all.iter().filter(|it| is_free(&it.value)).count() == 3;
    cluster.until(&kinds::PERSISTENT_VOLUMES, "available", free).await;
    let claim = value!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "default"},
        "spec": {"storageClassName": "", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}});
    cluster.create(&kinds::PERSISTENT_VOLUME_CLAIMS, &claim).await;
    let is = |phase: &'static str| move |it: &Value| it.str_at(&["status", "phase"]) == Some(phase);
    let bound = wait_for_object(&fixture, &kinds::PERSISTENT_VOLUME_CLAIMS, "c", is("Bound")).await;
    assert_eq!(bound["spec"]["volumeName"], "fitting".into());
    let volume =
        |phase: &'static str| move |all: &Objects| all.get(&Key::cluster("fitting")).is_some_and(|it| is(phase)(it));
    cluster.until(&kinds::PERSISTENT_VOLUMES, "bound", volume("Bound")).await;
    delete(cluster, &kinds::PERSISTENT_VOLUME_CLAIMS, "c", None).await;
    cluster.until(&kinds::PERSISTENT_VOLUMES, "released", volume("Released")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_namespace_gets_service_account_and_root_ca_and_token_secrets_are_filled() {
    let sign: serviceaccount_token::Sign =
        Arc::new(|namespace, name, _, secret| Some(format!("{namespace}/{name}/{secret}")));
    let token = serviceaccount_token::Config { sign, root_certificates: "PEM".to_owned() };
    let setups = Setups {
        root_ca: Setup::new(Some(root_ca::Config("PEM".to_owned()))),
        serviceaccount_token: Setup::new(Some(token)),
        ..Setups::default()
    };
    let watched = [&kinds::SERVICE_ACCOUNTS, &kinds::CONFIG_MAPS, &kinds::SECRETS];
    let fixture = fixture_with(1, &watched, &setups).await;
    let cluster = &fixture.cluster;
    let namespace = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh"}});
    let target = Target::all(&kinds::NAMESPACES);
    cluster.admin().create(&target, &namespace, &WriteOptions::default()).await.expect("a namespace");
    let in_fresh = |name: &str| Key::new("fresh", name);
    cluster.until(&kinds::SERVICE_ACCOUNTS, "made", |all| all.get(&in_fresh("default")).is_some()).await;
    let roots = in_fresh("kube-root-ca.crt");
    let published = |all: &Objects| all.get(&roots).is_some_and(|it| it["data"]["ca.crt"] == "PEM".into());
    cluster.until(&kinds::CONFIG_MAPS, "published", published).await;
    let metadata =
        value!({"name": "t", "namespace": "default", "annotations": {"kubernetes.io/service-account.name": "default"}});
    let secret = value!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/service-account-token"});
    cluster.until(&kinds::SERVICE_ACCOUNTS, "made", |all| has(all, "default")).await;
    cluster.create(&kinds::SECRETS, &secret).await;
    let filled = wait_for_object(&fixture, &kinds::SECRETS, "t", |it| it.at(&["data", "token"]).is_some()).await;
    assert_eq!(filled["data"]["token"], "ZGVmYXVsdC9kZWZhdWx0L3Q=".into());
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_lost_node_are_recreated_elsewhere() {
    let lifecycle = node_lifecycle::Config {
        grace: Duration::from_seconds(15),
        startup_grace: Duration::from_seconds(15),
        ..node_lifecycle::Config::default()
    };
    let setups = Setups { node_lifecycle: Setup::new(lifecycle), ..Setups::default() };
    // The surviving nodes are simulated separately from the lost one.
    let fixture = fixture_with(3, &[&kinds::NODES, &kinds::PODS, &kinds::DEPLOYMENTS], &setups).await;
    let cluster = &fixture.cluster;
    let lost = hollow_nodes(cluster, 1, "lost-").await;
    let impatient = value!([
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}]);
    let spec = value!({"replicas": 8, "template": {"spec": {"tolerations": impatient}}});
    cluster.create(&kinds::DEPLOYMENTS, &workload("Deployment", "web", spec)).await;
    let available = |it: &Value| is_seen(it) && number(it, "availableReplicas") == 8;
    wait_for_object(&fixture, &kinds::DEPLOYMENTS, "web", available).await;
    let on_lost = |pods: &Objects| {
        let there = |pod: &Value| pod.str_at(&["spec", "nodeName"]).is_some_and(|node| node.starts_with("lost-"));
        pods.iter().filter(|it| there(&it.value) && !Meta::of(&it.value).is_deleting()).count()
    };
    cluster.until(&kinds::PODS, "everywhere", |pods| on_lost(pods) > 0).await;
    drop(lost);
    let silent = |all: &Objects| {
        let lost = all.iter().find(|it| it.key.name.starts_with("lost-"));
        let ready = lost.and_then(|it| condition::find(&it.value, "Ready"));
        ready.is_some_and(|ready| ready.str_at(&["status"]) == Some("Unknown"))
    };
    cluster.until(&kinds::NODES, "silent", silent).await;
    cluster.until(&kinds::PODS, "sent away", |pods| on_lost(pods) == 0).await;
    wait_for_object(&fixture, &kinds::DEPLOYMENTS, "web", available).await;
}
