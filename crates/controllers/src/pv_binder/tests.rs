use api::resources::PERSISTENT_VOLUME_CLAIMS;
use apimachinery::value;
use controller::kinds;
use controller::testing::{FakeCluster, check_properties, run_until_stable};
use proptest::prelude::*;

use super::*;

fn new_cluster() -> FakeCluster {
    FakeCluster::new(Time::from_unix(1_700_000_000, 0))
}

fn volume(cluster: &mut FakeCluster, name: &str, size: &str, class: &str) -> Key {
    cluster.add(
        &kinds::PERSISTENT_VOLUMES,
        value!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size},
            "storageClassName": class}}),
    )
}

fn claim(cluster: &mut FakeCluster, name: &str, size: &str, class: &str, volume: &str) -> Key {
    let mut spec = value!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, "storageClassName": class});
    if !volume.is_empty() {
        spec.as_object_mut().unwrap().insert("volumeName", volume);
    }
    cluster.add(&kinds::PERSISTENT_VOLUME_CLAIMS, value!({"metadata": {"namespace": "a", "name": name}, "spec": spec}))
}

fn run_binder(cluster: &mut FakeCluster) {
    run_until_stable::<PersistentVolumeBinder>(cluster, |_| false);
}

/// Formats a claim as `phase of volume`.
fn of_claim(cluster: &FakeCluster, key: &Key) -> String {
    let claim = cluster.get(&kinds::PERSISTENT_VOLUME_CLAIMS, key).unwrap();
    format!("{} {}", claim.text_at(&["status", "phase"]), claim.text_at(&["spec", "volumeName"]))
}

fn phase(cluster: &FakeCluster, key: &Key) -> String {
    cluster.get(&kinds::PERSISTENT_VOLUMES, key).unwrap().text_at(&["status", "phase"]).to_owned()
}

#[test]
fn smallest_matching_volume_is_bound() {
    let mut cluster = new_cluster();
    let big = volume(&mut cluster, "big", "10Gi", "c");
    let small = volume(&mut cluster, "small", "2Gi", "c");
    volume(&mut cluster, "tiny", "500Mi", "c");
    volume(&mut cluster, "other", "1Gi", "d");
    // The volumes must be Available before the smallest can be selected.
    run_binder(&mut cluster);
    let key = claim(&mut cluster, "x", "1Gi", "c", "");
    check_properties::<PersistentVolumeBinder>(&cluster, |_| false);
    run_binder(&mut cluster);
    assert_eq!(of_claim(&cluster, &key), "Bound small");
    assert_eq!((phase(&cluster, &small), phase(&cluster, &big)), ("Bound".into(), "Available".into()));
    let bound = cluster.get(&kinds::PERSISTENT_VOLUME_CLAIMS, &key).unwrap();
    assert_eq!(bound["status"]["capacity"], value!({"storage": "2Gi"}));
    let meta = Meta::of(bound);
    assert_eq!((meta.annotation(BIND_COMPLETED), meta.annotation(BOUND_BY_CONTROLLER)), (Some("yes"), Some("yes")));
    cluster.remove(&kinds::PERSISTENT_VOLUME_CLAIMS, &key);
    run_binder(&mut cluster);
    assert_eq!(phase(&cluster, &small), "Released");
}

#[test]
fn volume_requested_by_name_is_bound_if_it_matches() {
    let mut cluster = new_cluster();
    volume(&mut cluster, "v", "1Gi", "c");
    let key = claim(&mut cluster, "x", "1Gi", "c", "v");
    let greedy = claim(&mut cluster, "y", "5Gi", "c", "v");
    run_binder(&mut cluster);
    assert_eq!(of_claim(&cluster, &key), "Bound v");
    assert_eq!(of_claim(&cluster, &greedy), "Pending v");
    let meta = cluster.get(&kinds::PERSISTENT_VOLUME_CLAIMS, &key).unwrap();
    assert_eq!(Meta::of(meta).annotation(BOUND_BY_CONTROLLER), None, "a user set the value");
}

#[test]
fn claim_without_its_volume_becomes_lost() {
    let mut cluster = new_cluster();
    let volume = volume(&mut cluster, "v", "1Gi", "c");
    let key = claim(&mut cluster, "x", "1Gi", "c", "");
    run_binder(&mut cluster);
    cluster.remove(&kinds::PERSISTENT_VOLUMES, &volume);
    run_binder(&mut cluster);
    assert_eq!(of_claim(&cluster, &key), "Lost v");
}

#[test]
fn wait_for_first_consumer_leaves_the_choice_to_the_scheduler() {
    let mut cluster = new_cluster();
    volume(&mut cluster, "v", "1Gi", "late");
    cluster.add(
        &kinds::STORAGE_CLASSES,
        value!({"metadata": {"name": "late"}, "provisioner": "example.com/p", "volumeBindingMode": "WaitForFirstConsumer"}),
    );
    let key = claim(&mut cluster, "x", "1Gi", "late", "");
    let plan = |cluster: &FakeCluster| {
        controller::decide::<PersistentVolumeBinder>(&cluster.cache::<PersistentVolumeBinder>(), &(), &key, cluster.now)
    };
    assert!(plan(&cluster).to_string().contains("waiting for first consumer"), "{}", plan(&cluster));
    cluster.change(&kinds::PERSISTENT_VOLUME_CLAIMS, &key, |claim| {
        apimachinery::meta::MetaMut::of(claim).unwrap().set_annotation(SELECTED_NODE, "n");
    });
    cluster.remove(&kinds::PERSISTENT_VOLUMES, &Key::cluster("v"));
    cluster.execute(&plan(&cluster).actions[0]).unwrap();
    let stored_claim = cluster.get(&kinds::PERSISTENT_VOLUME_CLAIMS, &key).unwrap();
    assert_eq!(Meta::of(stored_claim).annotation(PROVISIONER), Some("example.com/p"));
}

#[test]
fn claim_without_a_class_gets_the_default_class() {
    let mut cluster = new_cluster();
    let key = cluster.add(
        &kinds::PERSISTENT_VOLUME_CLAIMS,
        value!({"metadata": {"namespace": "a", "name": "x"}, "spec": {"accessModes": ["ReadWriteOnce"]}}),
    );
    cluster.add(
        &kinds::STORAGE_CLASSES,
        value!({"metadata": {"name": "std", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "example.com/p"}),
    );
    let plan = controller::decide::<PersistentVolumeBinder>(
        &cluster.cache::<PersistentVolumeBinder>(),
        &(),
        &key,
        cluster.now,
    );
    cluster.execute(&plan.actions[0]).unwrap();
    assert_eq!(cluster.get(&kinds::PERSISTENT_VOLUME_CLAIMS, &key).unwrap()["spec"]["storageClassName"], "std".into());
}

/// In CVE-2020-8555 the controller manager requested the URL of a StorageClass, and the event contained a part of the
/// response.
#[test]
fn cve_2020_8555_the_url_of_a_storage_class_is_neither_requested_nor_reported() {
    const URL: &str = "http://169.254.169.254/latest/meta-data/";
    let mut cluster = new_cluster();
    cluster.add(
        &kinds::STORAGE_CLASSES,
        value!({"metadata": {"name": "gluster"}, "provisioner": "kubernetes.io/glusterfs",
            "parameters": {"resturl": URL, "restuser": "u", "adminSecretName": "s"}}),
    );
    let key = claim(&mut cluster, "x", "1Gi", "gluster", "");
    // Controllers compute plans from cached objects only. This plan annotates the provisioner and waits.
    let plan = controller::decide::<PersistentVolumeBinder>(
        &cluster.cache::<PersistentVolumeBinder>(),
        &(),
        &key,
        cluster.now,
    );
    assert!(!plan.to_string().contains("169.254"), "{plan}");
    for action in &plan.actions {
        cluster.execute(action).unwrap();
    }
    let stored_claim = cluster.get(&kinds::PERSISTENT_VOLUME_CLAIMS, &key).unwrap();
    assert_eq!(Meta::of(stored_claim).annotation(PROVISIONER), Some("kubernetes.io/glusterfs"));
    assert!(!apimachinery::json::to_string(stored_claim).contains("169.254"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, ..ProptestConfig::default() })]

    #[test]
    fn no_volume_has_two_claims_and_matching_claims_are_bound(
        sizes in prop::collection::vec(1..6u8, 0..5),
        wants in prop::collection::vec(1..6u8, 0..4),
    ) {
        let mut cluster = new_cluster();
        for (at, size) in sizes.iter().enumerate() {
            volume(&mut cluster, &format!("v{at}"), &format!("{size}Gi"), "c");
        }
        for (at, want) in wants.iter().enumerate() {
            claim(&mut cluster, &format!("c{at}"), &format!("{want}Gi"), "c", "");
        }
        run_binder(&mut cluster);
        let claims = cluster.of(PERSISTENT_VOLUME_CLAIMS);
        let mut taken: Vec<String> =
            claims.iter().map(|it| it.value.text_at(&["spec", "volumeName"]).to_owned()).filter(|it| !it.is_empty()).collect();
        taken.sort();
        let count = taken.len();
        taken.dedup();
        prop_assert_eq!(taken.len(), count);
        let free: Vec<u8> =
            sizes.iter().enumerate().filter(|(at, _)| !taken.contains(&format!("v{at}"))).map(|(_, size)| *size).collect();
        for (at, want) in wants.iter().enumerate() {
            let key = Key::new("a", format!("c{at}"));
            if of_claim(&cluster, &key).starts_with("Pending") {
                prop_assert!(free.iter().all(|size| size < want), "{} could have been bound", key);
            }
        }
    }
}
