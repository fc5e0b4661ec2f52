use controller::testing::{FakeCluster, check_properties, settle};
use proptest::prelude::*;

use super::*;
use crate::pv_binder::PersistentVolumeBinder;

fn world(reclaim: &str) -> FakeCluster {
    let mut world = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    world.configure(Config { node: "n".into(), root: "/data".into() });
    world.add(
        &kinds::STORAGE_CLASSES,
        value!({"metadata": {"name": "local-path"}, "provisioner": PROVISIONER, "reclaimPolicy": reclaim,
            "volumeBindingMode": "WaitForFirstConsumer"}),
    );
    world
}

/// Creates a claim as annotated by the scheduler and the volume binder.
fn claim(world: &mut FakeCluster, name: &str, node: &str, spec: Value) -> Key {
    let base = value!({"accessModes": ["ReadWriteOnce"], "storageClassName": "local-path",
        "resources": {"requests": {"storage": "1Gi"}}});
    let spec = apimachinery::patch::merge::apply(base, spec);
    let annotations = value!({"volume.kubernetes.io/storage-provisioner": PROVISIONER,
        "volume.beta.kubernetes.io/storage-provisioner": PROVISIONER, "volume.kubernetes.io/selected-node": node});
    let metadata = value!({"namespace": "a", "name": name, "annotations": annotations});
    world.add(&kinds::PERSISTENT_VOLUME_CLAIMS, value!({"metadata": metadata, "spec": spec}))
}

/// Simulates the volume binder.
fn binder(world: &mut FakeCluster) -> bool {
    let before = world.revision();
    settle::<PersistentVolumeBinder>(world, |_| false);
    world.revision() != before
}

fn did(world: &FakeCluster) -> Vec<&str> {
    let ours = |line: &&str| line.contains(" directory ") || line.contains("ProvisioningFailed");
    world.log.iter().map(String::as_str).filter(ours).collect()
}

#[test]
fn a_claim_gets_a_directory_that_is_removed_with_it() {
    let mut world = world("Delete");
    let key = claim(&mut world, "c", "n", value!({}));
    claim(&mut world, "elsewhere", "other", value!({}));
    check_properties::<LocalPath>(&world, binder);
    settle::<LocalPath>(&mut world, binder);
    assert_eq!(did(&world), ["create directory /data/pvc-uid-2_a_c"]);
    let volumes = world.of("persistentvolumes");
    let volume = &volumes.iter().next().unwrap().value;
    assert_eq!((volumes.len(), text(volume, &["status", "phase"])), (1, "Bound"));
    world.remove(&kinds::PERSISTENT_VOLUME_CLAIMS, &key);
    check_properties::<LocalPath>(&world, binder);
    settle::<LocalPath>(&mut world, binder);
    assert_eq!(did(&world), ["create directory /data/pvc-uid-2_a_c", "remove directory /data/pvc-uid-2_a_c"]);
    assert!(world.of("persistentvolumes").is_empty());
}

#[test]
fn a_retained_volume_keeps_its_directory() {
    let mut world = world("Retain");
    let key = claim(&mut world, "c", "n", value!({}));
    settle::<LocalPath>(&mut world, binder);
    world.remove(&kinds::PERSISTENT_VOLUME_CLAIMS, &key);
    settle::<LocalPath>(&mut world, binder);
    assert_eq!(world.of("persistentvolumes").len(), 1, "until a person deletes it");
    world.delete(&kinds::PERSISTENT_VOLUMES, &Key::cluster("pvc-uid-2"), None, None);
    settle::<LocalPath>(&mut world, binder);
    assert!(world.of("persistentvolumes").is_empty());
    assert_eq!(did(&world), ["create directory /data/pvc-uid-2_a_c"]);
}

#[test]
fn deletion_of_a_bound_volume_waits_for_its_claim() {
    let mut world = world("Delete");
    let key = claim(&mut world, "c", "n", value!({}));
    settle::<LocalPath>(&mut world, binder);
    world.delete(&kinds::PERSISTENT_VOLUMES, &Key::cluster("pvc-uid-2"), None, None);
    settle::<LocalPath>(&mut world, binder);
    assert_eq!(did(&world).len(), 1, "the folder is in use");
    world.remove(&kinds::PERSISTENT_VOLUME_CLAIMS, &key);
    settle::<LocalPath>(&mut world, binder);
    assert_eq!(did(&world)[1..], ["remove directory /data/pvc-uid-2_a_c"]);
}

#[test]
fn unsupported_claims_are_reported() {
    let check = |spec: Value, expect: &str| {
        let mut world = world("Delete");
        claim(&mut world, "c", "n", spec);
        settle::<LocalPath>(&mut world, |_| false);
        let told = "event PersistentVolumeClaim a/c Warning ProvisioningFailed: failed to provision volume with StorageClass \"local-path\"";
        assert_eq!(did(&world)[0], format!("{told}: {expect}"));
        assert!(world.of("persistentvolumes").is_empty());
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
        let mut world = world(if retain { "Retain" } else { "Delete" });
        for (number, (node, shared, _)) in claims.iter().enumerate() {
            let modes = if *shared { value!(["ReadWriteMany"]) } else { value!(["ReadWriteOnce"]) };
            claim(&mut world, &format!("c{number}"), ["n", "other"][*node], value!({"accessModes": modes}));
        }
        check_properties::<LocalPath>(&world, binder);
        settle::<LocalPath>(&mut world, binder);
        for (number, (_, _, goes)) in claims.iter().enumerate() {
            if *goes {
                world.remove(&kinds::PERSISTENT_VOLUME_CLAIMS, &Key::new("a", format!("c{number}")));
            }
        }
        check_properties::<LocalPath>(&world, binder);
        settle::<LocalPath>(&mut world, binder);
        let kept = claims.iter().filter(|(node, shared, goes)| *node == 0 && !shared && (retain || !goes)).count();
        prop_assert_eq!(world.of("persistentvolumes").len(), kept);
    }
}
