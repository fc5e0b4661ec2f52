use apimachinery::Resource;
use controller::kinds;
use controller::object_graph::{run_until_stable, step};
use controller::testing::{FakeCluster, kubelet};
use proptest::prelude::*;

use super::*;

fn new_cluster() -> FakeCluster {
    FakeCluster::new(Time::from_unix(1_700_000_000, 0))
}

/// Creates an object with owners and returns its UID.
fn add(cluster: &mut FakeCluster, resource: &Resource, name: &str, owners: Vec<Value>) -> String {
    let key = cluster.add(resource, value!({"metadata": {"namespace": "a", "name": name, "ownerReferences": owners}}));
    Meta::of(cluster.get(resource, &key).unwrap()).uid().to_owned()
}

fn owner(resource: &Resource, name: &str, uid: &str, block: bool) -> Value {
    value!({"apiVersion": (resource.api_version()), "kind": (resource.kind.as_str()), "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": block})
}

/// Creates a Deployment with its ReplicaSet and pod.
fn chain() -> FakeCluster {
    let mut cluster = new_cluster();
    let deployment = add(&mut cluster, &kinds::DEPLOYMENTS, "web", Vec::new());
    let of_web = owner(&kinds::DEPLOYMENTS, "web", &deployment, true);
    let set = add(&mut cluster, &kinds::REPLICA_SETS, "web-1", vec![of_web]);
    add(&mut cluster, &kinds::PODS, "web-1-x", vec![owner(&kinds::REPLICA_SETS, "web-1", &set, true)]);
    cluster
}

fn names(cluster: &FakeCluster) -> Vec<String> {
    let mut names = Vec::new();
    for resource in kinds::ALL {
        names.extend(cluster.of(resource).iter().map(|entry| entry.key.name.to_string()));
    }
    names.sort();
    names
}

fn key(name: &str) -> Key {
    Key::new("a", name)
}

#[test]
fn objects_with_existing_owners_are_not_changed() {
    let mut cluster = chain();
    run_until_stable::<GarbageCollector>(&mut cluster, |_| false, None);
    assert_eq!(names(&cluster), ["web", "web-1", "web-1-x"]);
    assert!(cluster.log.is_empty(), "{:?}", cluster.log);
}

#[test]
fn background_deletion_deletes_dependents_after_the_owner() {
    let mut cluster = chain();
    cluster.delete(&kinds::DEPLOYMENTS, &key("web"), Some(Propagation::Background), None);
    run_until_stable::<GarbageCollector>(&mut cluster, kubelet, None);
    assert_eq!(cluster.log[0], "delete replicasets.apps a/web-1 Background");
    assert_eq!(names(&cluster), [""; 0]);
}

#[test]
fn foreground_deletion_deletes_the_owner_after_its_dependents() {
    let mut cluster = chain();
    cluster.delete(&kinds::DEPLOYMENTS, &key("web"), Some(Propagation::Foreground), None);
    run_until_stable::<GarbageCollector>(&mut cluster, kubelet, None);
    assert_eq!(names(&cluster), [""; 0]);
    let order: Vec<&str> = cluster.log.iter().map(|line| line.split(' ').nth(2).unwrap()).collect();
    assert_eq!(order, ["a/web-1", "a/web-1-x", "a/web-1", "a/web"], "{:?}", cluster.log);
    assert_eq!(cluster.log[0], "delete replicasets.apps a/web-1 Foreground", "it has dependents");
}

#[test]
fn foreground_deletion_waits_only_for_blocking_dependents() {
    let mut cluster = new_cluster();
    let map = add(&mut cluster, &kinds::CONFIG_MAPS, "map", Vec::new());
    add(&mut cluster, &kinds::SECRETS, "secret", vec![owner(&kinds::CONFIG_MAPS, "map", &map, false)]);
    cluster.change(&kinds::SECRETS, &key("secret"), |secret| {
        apimachinery::meta::MetaMut::of(secret).unwrap().add_finalizer("example.com/slow");
    });
    cluster.delete(&kinds::CONFIG_MAPS, &key("map"), Some(Propagation::Foreground), None);
    run_until_stable::<GarbageCollector>(&mut cluster, |_| false, None);
    assert_eq!(names(&cluster), ["secret"], "it is terminating");
    assert!(Meta::of(cluster.get(&kinds::SECRETS, &key("secret")).unwrap()).is_deleting());
}

#[test]
fn orphan_deletion_keeps_dependents_without_owner_reference() {
    let mut cluster = chain();
    cluster.delete(&kinds::DEPLOYMENTS, &key("web"), Some(Propagation::Orphan), None);
    run_until_stable::<GarbageCollector>(&mut cluster, kubelet, None);
    assert_eq!(names(&cluster), ["web-1", "web-1-x"]);
    let set = cluster.get(&kinds::REPLICA_SETS, &key("web-1")).unwrap();
    assert_eq!(Meta::of(set).owner_references().count(), 0);
}

#[test]
fn nonexistent_owner_is_confirmed_with_the_api_server() {
    let mut cluster = new_cluster();
    let uid = add(&mut cluster, &kinds::CONFIG_MAPS, "map", vec![owner(&kinds::CONFIG_MAPS, "never", "u", true)]);
    let plan = step::<GarbageCollector>(&cluster, &Key::cluster(uid));
    assert_eq!(plan.to_string(), "delete configmaps a/map Background\n");
    // An object with the same name and another UID.
    add(&mut cluster, &kinds::CONFIG_MAPS, "never", Vec::new());
    run_until_stable::<GarbageCollector>(&mut cluster, |_| false, None);
    assert_eq!(names(&cluster), ["never"]);
}

#[test]
fn dependents_of_an_unserved_kind_are_not_deleted() {
    let mut cluster = new_cluster();
    let nobody = value!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "u"});
    add(&mut cluster, &kinds::CONFIG_MAPS, "map", vec![nobody]);
    run_until_stable::<GarbageCollector>(&mut cluster, |_| false, None);
    assert_eq!(names(&cluster), ["map"], "an unserved kind may be served again");
}

#[test]
fn object_with_an_existing_owner_is_not_deleted() {
    let mut cluster = new_cluster();
    let stays = add(&mut cluster, &kinds::CONFIG_MAPS, "stays", Vec::new());
    let goes = add(&mut cluster, &kinds::CONFIG_MAPS, "goes", Vec::new());
    let owners = vec![
        owner(&kinds::CONFIG_MAPS, "stays", &stays, false),
        owner(&kinds::CONFIG_MAPS, "goes", &goes, true),
        owner(&kinds::CONFIG_MAPS, "never", "u", true),
    ];
    add(&mut cluster, &kinds::SECRETS, "secret", owners);
    cluster.delete(&kinds::CONFIG_MAPS, &key("goes"), Some(Propagation::Foreground), None);
    run_until_stable::<GarbageCollector>(&mut cluster, |_| false, None);
    assert_eq!(names(&cluster), ["secret", "stays"]);
    let left: Vec<String> = Meta::of(cluster.get(&kinds::SECRETS, &key("secret")).unwrap())
        .owner_references()
        .map(|owner| owner.name().to_owned())
        .collect();
    assert_eq!(left, ["stays"]);
}

#[test]
fn owner_reference_with_a_wrong_name_is_dangling() {
    let mut cluster = new_cluster();
    let map = add(&mut cluster, &kinds::CONFIG_MAPS, "map", Vec::new());
    add(&mut cluster, &kinds::SECRETS, "secret", vec![owner(&kinds::CONFIG_MAPS, "other", &map, true)]);
    run_until_stable::<GarbageCollector>(&mut cluster, |_| false, None);
    assert_eq!(names(&cluster), ["map"]);
}

#[test]
fn ownership_cycle_is_deleted() {
    let mut cluster = new_cluster();
    let first = add(&mut cluster, &kinds::CONFIG_MAPS, "first", Vec::new());
    let second =
        add(&mut cluster, &kinds::CONFIG_MAPS, "second", vec![owner(&kinds::CONFIG_MAPS, "first", &first, true)]);
    cluster.change(&kinds::CONFIG_MAPS, &key("first"), |object| {
        let owners = vec![owner(&kinds::CONFIG_MAPS, "second", &second, true)];
        apimachinery::meta::MetaMut::of(object).unwrap().set("ownerReferences", owners);
    });
    cluster.delete(&kinds::CONFIG_MAPS, &key("first"), Some(Propagation::Foreground), None);
    run_until_stable::<GarbageCollector>(&mut cluster, |_| false, None);
    assert_eq!(names(&cluster), [""; 0], "{:?}", cluster.log);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_ownership_forest_loses_exactly_its_unowned_objects(
        parents in prop::collection::vec((0..8usize, any::<bool>()), 1..10),
        deleted in 0..10usize,
        how in prop::sample::select(vec![Propagation::Background, Propagation::Foreground]),
        skip in prop::option::of(0..6usize),
    ) {
        let mut cluster = new_cluster();
        let mut uids: Vec<String> = Vec::new();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); parents.len()];
        for (at, (parent, block)) in parents.iter().enumerate() {
            let owners = if *parent < at {
                children[*parent].push(at);
                vec![owner(&kinds::CONFIG_MAPS, &format!("o{parent}"), &uids[*parent], *block)]
            } else {
                Vec::new()
            };
            let uid = add(&mut cluster, &kinds::CONFIG_MAPS, &format!("o{at}"), owners);
            uids.push(uid);
        }
        let root = deleted % parents.len();
        let mut collected = BTreeSet::from([root]);
        let mut open = vec![root];
        while let Some(next) = open.pop() {
            open.extend(children[next].iter().filter(|child| collected.insert(**child)));
        }
        cluster.delete(&kinds::CONFIG_MAPS, &key(&format!("o{root}")), Some(how), None);
        run_until_stable::<GarbageCollector>(&mut cluster, |_| false, skip);
        let mut expect: Vec<String> =
            (0..parents.len()).filter(|at| !collected.contains(at)).map(|at| format!("o{at}")).collect();
        expect.sort();
        prop_assert_eq!(names(&cluster), expect);
    }
}
