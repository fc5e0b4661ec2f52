use api::resources::PERSISTENT_VOLUMES;
use controller::testing::{FakeCluster, check_properties_with, run_until_stable, run_until_stable_with};
use proptest::prelude::*;

use super::*;
use crate::pv_binder::PersistentVolumeBinder;

fn config() -> Config {
    Config { node: "n".into(), root: "/data".into() }
}

fn new_cluster(reclaim: &str) -> FakeCluster {
    let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    cluster.add(
        &kinds::STORAGE_CLASSES,
        value!({"metadata": {"name": "local-path"}, "provisioner": PROVISIONER, "reclaimPolicy": reclaim,
            "volumeBindingMode": "WaitForFirstConsumer"}),
    );
    cluster
}

/// Creates a claim as annotated by the scheduler and the volume binder.
fn claim(cluster: &mut FakeCluster, name: &str, node: &str, spec: Value) -> Key {
    let base = value!({"accessModes": ["ReadWriteOnce"], "storageClassName": "local-path",
        "resources": {"requests": {"storage": "1Gi"}}});
    let spec = apimachinery::patch::merge::apply(base, spec);
    let annotations = value!({"volume.kubernetes.io/storage-provisioner": PROVISIONER,
        "volume.beta.kubernetes.io/storage-provisioner": PROVISIONER, "volume.kubernetes.io/selected-node": node});
    let metadata = value!({"namespace": "a", "name": name, "annotations": annotations});
    cluster.add(&kinds::PERSISTENT_VOLUME_CLAIMS, value!({"metadata": metadata, "spec": spec}))
}

/// Simulates the volume binder.
fn binder(cluster: &mut FakeCluster) -> bool {
    let before = cluster.revision();
    run_until_stable::<PersistentVolumeBinder>(cluster, |_| false);
    cluster.revision() != before
}

fn did(cluster: &FakeCluster) -> Vec<&str> {
    let is_relevant = |line: &&str| line.contains(" directory ") || line.contains("ProvisioningFailed");
    cluster.log.iter().map(String::as_str).filter(is_relevant).collect()
}

#[test]
fn claim_gets_a_directory_that_is_removed_with_it() {
    let mut cluster = new_cluster("Delete");
    let key = claim(&mut cluster, "c", "n", value!({}));
    claim(&mut cluster, "elsewhere", "other", value!({}));
    check_properties_with::<LocalPath>(&config(), &cluster, binder);
    run_until_stable_with::<LocalPath>(&config(), &mut cluster, binder);
    assert_eq!(did(&cluster), ["create directory /data/pvc-uid-2_a_c"]);
    let volumes = cluster.of(PERSISTENT_VOLUMES);
    let volume = &volumes.iter().next().unwrap().value;
    assert_eq!((volumes.len(), volume.text_at(&["status", "phase"])), (1, "Bound"));
    cluster.remove(&kinds::PERSISTENT_VOLUME_CLAIMS, &key);
    check_properties_with::<LocalPath>(&config(), &cluster, binder);
    run_until_stable_with::<LocalPath>(&config(), &mut cluster, binder);
    assert_eq!(did(&cluster), ["create directory /data/pvc-uid-2_a_c", "remove directory /data/pvc-uid-2_a_c"]);
    assert!(cluster.of(PERSISTENT_VOLUMES).is_empty());
}

#[test]
fn retained_volume_keeps_its_directory() {
    let mut cluster = new_cluster("Retain");
    let key = claim(&mut cluster, "c", "n", value!({}));
    run_until_stable_with::<LocalPath>(&config(), &mut cluster, binder);
    cluster.remove(&kinds::PERSISTENT_VOLUME_CLAIMS, &key);
    run_until_stable_with::<LocalPath>(&config(), &mut cluster, binder);
    assert_eq!(cluster.of(PERSISTENT_VOLUMES).len(), 1, "until a person deletes it");
    cluster.delete(&kinds::PERSISTENT_VOLUMES, &Key::cluster("pvc-uid-2"), None, None);
    run_until_stable_with::<LocalPath>(&config(), &mut cluster, binder);
    assert!(cluster.of(PERSISTENT_VOLUMES).is_empty());
    assert_eq!(did(&cluster), ["create directory /data/pvc-uid-2_a_c"]);
}

#[test]
fn deletion_of_a_bound_volume_waits_for_its_claim() {
    let mut cluster = new_cluster("Delete");
    let key = claim(&mut cluster, "c", "n", value!({}));
    run_until_stable_with::<LocalPath>(&config(), &mut cluster, binder);
    cluster.delete(&kinds::PERSISTENT_VOLUMES, &Key::cluster("pvc-uid-2"), None, None);
    run_until_stable_with::<LocalPath>(&config(), &mut cluster, binder);
    assert_eq!(did(&cluster).len(), 1, "the folder is in use");
    cluster.remove(&kinds::PERSISTENT_VOLUME_CLAIMS, &key);
    run_until_stable_with::<LocalPath>(&config(), &mut cluster, binder);
    assert_eq!(did(&cluster)[1..], ["remove directory /data/pvc-uid-2_a_c"]);
}

#[test]
fn unsupported_claims_are_reported() {
    let check = |spec: Value, expect: &str| {
        let mut cluster = new_cluster("Delete");
        claim(&mut cluster, "c", "n", spec);
        run_until_stable_with::<LocalPath>(&config(), &mut cluster, |_| false);
        let prefix = "event PersistentVolumeClaim a/c Warning ProvisioningFailed: failed to provision volume with StorageClass \"local-path\"";
        assert_eq!(did(&cluster)[0], format!("{prefix}: {expect}"));
        assert!(cluster.of(PERSISTENT_VOLUMES).is_empty());
    };
    check(
        value!({"accessModes": ["ReadWriteMany"]}),
        "a folder of one node can only be ReadWriteOnce or ReadWriteOncePod",
    );
    check(value!({"volumeMode": "Block"}), "a folder is no block device");
    check(value!({"selector": {"matchLabels": {"a": "b"}}}), "claim.Spec.Selector is not supported");
    check(
        value!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}}),
        "volumes are made empty, not from a data source",
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn properties_hold_in_generated_clusters(claims in prop::collection::vec((0..2usize, any::<bool>(), any::<bool>()), 0..5), retain: bool) {
        let mut cluster = new_cluster(if retain { "Retain" } else { "Delete" });
        for (number, (node, shared, _)) in claims.iter().enumerate() {
            let modes = if *shared { value!(["ReadWriteMany"]) } else { value!(["ReadWriteOnce"]) };
            claim(&mut cluster, &format!("c{number}"), ["n", "other"][*node], value!({"accessModes": modes}));
        }
        check_properties_with::<LocalPath>(&config(), &cluster, binder);
        run_until_stable_with::<LocalPath>(&config(), &mut cluster, binder);
        for (number, (_, _, goes)) in claims.iter().enumerate() {
            if *goes {
                cluster.remove(&kinds::PERSISTENT_VOLUME_CLAIMS, &Key::new("a", format!("c{number}")));
            }
        }
        check_properties_with::<LocalPath>(&config(), &cluster, binder);
        run_until_stable_with::<LocalPath>(&config(), &mut cluster, binder);
        let expected = claims.iter().filter(|(node, shared, goes)| *node == 0 && !shared && (retain || !goes)).count();
        prop_assert_eq!(cluster.of(PERSISTENT_VOLUMES).len(), expected);
    }
}
