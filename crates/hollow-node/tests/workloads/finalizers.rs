//! No finalizer of a controller outlives the protected objects, for any order of deletion and propagation policy.

use apimachinery::meta::Meta;
use apimachinery::{Key, Resource, Value, value};
use client::{DeleteOptions, ListOptions, Propagation, Target, WriteOptions};
use controller::{Objects, kinds};

use crate::{Fixture, fixture, template};

/// Number of namespaces that are emptied concurrently, each in a different order.
const SEEDS: u64 = 6;

/// Kinds that have finalizers, or own objects that have them.
const KINDS: &[&Resource] = &[
    &kinds::DEPLOYMENTS,
    &kinds::REPLICA_SETS,
    &kinds::STATEFUL_SETS,
    &kinds::DAEMON_SETS,
    &kinds::CONTROLLER_REVISIONS,
    &kinds::CRON_JOBS,
    &kinds::JOBS,
    &kinds::REPLICATION_CONTROLLERS,
    &kinds::PODS,
    &kinds::SERVICES,
    &kinds::ENDPOINT_SLICES,
    &kinds::PERSISTENT_VOLUME_CLAIMS,
    &kinds::RESOURCE_CLAIMS,
    &kinds::CONFIG_MAPS,
];

/// Returns the objects of a namespace, with its cluster-scoped volume.
fn objects(seed: u64) -> Vec<(&'static Resource, Value)> {
    let selector = |app: &str| value!({"matchLabels": {"app": app}});
    let apps = |kind: &str, name: &str, spec: Value| {
        let base = value!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
            "spec": {"selector": (selector(name)), "template": (template(name, "v1"))}});
        apimachinery::patch::merge::apply(base, value!({"spec": spec}))
    };
    let job = |name: &str, spec: Value| {
        let pod = value!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "v1"}]});
        let base = value!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"template": {"spec": pod}}});
        apimachinery::patch::merge::apply(base, value!({"spec": spec}))
    };
    let claim = |name: &str, volume: &str| {
        value!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": volume,
                "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let volume = format!("volume-{seed}");
    let uses = value!([{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]);
    let request = value!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "class"}}]}});
    vec![
        (&kinds::DEPLOYMENTS, apps("Deployment", "web", value!({"replicas": 2}))),
        (&kinds::STATEFUL_SETS, apps("StatefulSet", "db", value!({"replicas": 2, "serviceName": "db"}))),
        (&kinds::DAEMON_SETS, apps("DaemonSet", "agent", value!({}))),
        (&kinds::JOBS, job("batch", value!({"completions": 3, "parallelism": 3}))),
        (&kinds::JOBS, job("suspended", value!({"suspend": true}))),
        (
            &kinds::SERVICES,
            value!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
                "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80}]}}),
        ),
        (&kinds::PERSISTENT_VOLUME_CLAIMS, claim("claim", &volume)),
        (
            &kinds::PODS,
            value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user"},
                "spec": {"volumes": uses, "containers": [{"name": "c", "image": "v1"}]}}),
        ),
        (
            &kinds::RESOURCE_CLAIMS,
            value!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": "device", "finalizers": ["resource.kubernetes.io/delete-protection"]}, "spec": request}),
        ),
        (&kinds::CONFIG_MAPS, value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}})),
    ]
}

/// SplitMix64, for shuffling.
struct RandomSource(u64);

impl RandomSource {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(bound).expect("small")).expect("smaller")
    }
}

async fn create(fixture: &Fixture, namespace: &str, seed: u64) {
    let (admin, options) = (fixture.cluster.admin(), WriteOptions::default());
    let made = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    admin.create(&Target::all(&kinds::NAMESPACES), &made, &options).await.expect("a namespace");
    let volume = value!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": (format!("volume-{seed}"))},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": "/nowhere"}}});
    admin.create(&Target::all(&kinds::PERSISTENT_VOLUMES), &volume, &options).await.expect("a volume");
    for (resource, object) in objects(seed) {
        let created = admin.create(&Target::within(resource, namespace), &object, &options).await;
        created.unwrap_or_else(|error| panic!("{object}\nis refused: {error}"));
    }
    let claim = Target::named(&kinds::RESOURCE_CLAIMS, namespace, "device");
    let allocated = value!({"status": {"allocation": {"devices": {"results": [
        {"request": "r", "driver": "example.com", "pool": "p", "device": "d"}]}},
        "reservedFor": [{"resource": "pods", "name": "gone", "uid": "gone"}]}});
    let patch = client::Patch::Merge(allocated);
    admin.patch(&claim.subresource("status"), &patch, &options).await.expect("the claim is allocated");
}

/// Deletes everything in a namespace, in random order and with random propagation.
async fn delete_all(fixture: &Fixture, namespace: &str, random_source: &mut RandomSource) {
    let admin = fixture.cluster.admin();
    let mut all: Vec<(&Resource, Key)> = Vec::new();
    for resource in KINDS {
        let listed = admin.list(&Target::within(resource, namespace), &ListOptions::default()).await.expect("a list");
        all.extend(listed.items.iter().map(|object| (*resource, Key::of(object))));
    }
    let volume = namespace.replace("space", "volume");
    all.push((&kinds::PERSISTENT_VOLUMES, Key::cluster(volume.as_str())));
    while !all.is_empty() {
        let (resource, key) = all.swap_remove(random_source.below(all.len()));
        let propagation =
            [None, Some(Propagation::Background), Some(Propagation::Foreground), Some(Propagation::Orphan)]
                [random_source.below(4)];
        let options = DeleteOptions { propagation, ..DeleteOptions::default() };
        match admin.delete(&Target::object(resource, &key), &options).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => panic!("{resource} {key} is not deleted: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_finalizer_outlives_the_protected_objects() {
    let watched: Vec<&Resource> = KINDS.iter().copied().chain([&kinds::PERSISTENT_VOLUMES]).collect();
    let fixture = fixture(3, &watched).await;
    let cluster = &fixture.cluster;
    let namespaces: Vec<String> = (0..SEEDS).map(|seed| format!("space-{seed}")).collect();
    for (seed, namespace) in (0..SEEDS).zip(&namespaces) {
        create(&fixture, namespace, seed).await;
    }
    let protected = |all: &Objects, finalizer: &str| {
        all.iter().filter(|it| Meta::of(&it.value).finalizers().any(|have| have == finalizer)).count()
    };
    // Half of the namespaces are emptied while their workloads are still starting.
    let (early, late) = namespaces.split_at(namespaces.len() / 2);
    for (seed, namespace) in (100..).zip(early) {
        delete_all(&fixture, namespace, &mut RandomSource(seed)).await;
    }
    let bound = |all: &Objects| all.iter().filter(|it| it.value.str_at(&["status", "phase"]) == Some("Bound")).count();
    cluster
        .until(&kinds::PERSISTENT_VOLUME_CLAIMS, "bound and protected", |all| {
            bound(all) >= late.len() && protected(all, "kubernetes.io/pvc-protection") >= late.len()
        })
        .await;
    let running = |all: &Objects| {
        let user = |namespace: &String| all.get(&Key::new(namespace.as_str(), "user"));
        let is_running = |pod: &Value| pod.str_at(&["status", "phase"]) == Some("Running");
        late.iter().all(|namespace| user(namespace).is_some_and(is_running))
    };
    cluster.until(&kinds::PODS, "running", running).await;
    for (seed, namespace) in (200..).zip(late) {
        delete_all(&fixture, namespace, &mut RandomSource(seed)).await;
    }
    // Objects created by controllers in the meantime, and orphans, are deleted with the namespaces.
    for namespace in &namespaces {
        let target = Target::object(&kinds::NAMESPACES, &Key::cluster(namespace.as_str()));
        cluster.admin().delete(&target, &DeleteOptions::default()).await.expect("the namespace is deleted");
    }
    cluster
        .until(&kinds::NAMESPACES, "gone", |all| all.iter().filter(|it| it.key.name.starts_with("space-")).count() == 0)
        .await;
    cluster.until(&kinds::PERSISTENT_VOLUMES, "gone", apimachinery::Collection::is_empty).await;
    for resource in KINDS {
        let left = |all: &Objects| {
            let in_space = all.iter().filter(|it| it.key.namespace.starts_with("space-"));
            in_space.map(|it| it.key.to_string()).collect::<Vec<_>>()
        };
        cluster.until(resource, "gone", |all| left(all).is_empty()).await;
    }
}
