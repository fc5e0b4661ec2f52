use apimachinery::value;
use controller::testing::{FakeCluster, check_properties, settle};
use proptest::prelude::*;

use super::*;

fn world() -> FakeCluster {
    let mut world = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    let spec = value!({"metadata": {"labels": {"l": "v"}}, "spec": {"devices": {"requests": [{"name": "r"}]}}});
    world.add(&kinds::RESOURCE_CLAIM_TEMPLATES, value!({"metadata": {"namespace": "a", "name": "t"}, "spec": spec}));
    world
}

fn pod(world: &mut FakeCluster, name: &str, wishes: Value) -> Key {
    let metadata = value!({"namespace": "a", "name": name});
    world.add(&kinds::PODS, value!({"metadata": metadata, "spec": {"resourceClaims": wishes}}))
}

fn claim(world: &mut FakeCluster, name: &str, users: &[(&str, &str)]) -> Key {
    let users: Vec<Value> =
        users.iter().map(|(name, uid)| value!({"resource": "pods", "name": (*name), "uid": (*uid)})).collect();
    let key = world.add(
        &kinds::RESOURCE_CLAIMS,
        value!({"metadata": {"namespace": "a", "name": name, "finalizers": [FINALIZER]},
            "status": {"allocation": {"devices": {}}, "reservedFor": users}}),
    );
    world.answer(&all_pods(&key), Ok(value!({"items": []})));
    key
}

fn uid_of(world: &FakeCluster, key: &Key) -> String {
    Meta::of(world.get(&kinds::PODS, key).unwrap()).uid().to_owned()
}

fn end(world: &mut FakeCluster, key: &Key) {
    world.change(&kinds::PODS, key, |pod| {
        pod.as_object_mut().unwrap().insert("status", value!({"phase": "Succeeded"}));
    });
}

#[test]
fn a_claim_is_created_once_and_recorded_in_the_pod_status() {
    let mut world = world();
    let key = pod(&mut world, "p", value!([{"name": "gpu", "resourceClaimTemplateName": "t"}]));
    check_properties::<ResourceClaim>(&world, |_| false);
    settle::<ResourceClaim>(&mut world, |_| false);
    let claims = world.of(CLAIMS);
    let made = &claims.iter().next().unwrap().value;
    let name = Meta::of(made).name();
    assert!(claims.len() == 1 && name.starts_with("p-gpu-"), "{name}");
    assert_eq!(Meta::of(made).label("l"), Some("v"));
    assert_eq!(Meta::of(made).annotation(POD_CLAIM_NAME), Some("gpu"));
    assert!(made.at(&["spec", "devices", "requests"]).is_some());
    let pod = world.get(&kinds::PODS, &key).unwrap();
    assert_eq!(pod["status"]["resourceClaimStatuses"], value!([{"name": "gpu", "resourceClaimName": name}]));
}

#[test]
fn a_missing_template_is_reported_and_retried() {
    let mut world = world();
    pod(&mut world, "p", value!([{"name": "gpu", "resourceClaimTemplateName": "later"}]));
    settle::<ResourceClaim>(&mut world, |_| false);
    let told = "event Pod a/p Warning FailedResourceClaimCreation: PodResourceClaim gpu: resource claim template \"later\": \
        resourceclaimtemplate.resource.k8s.io \"later\" not found";
    assert_eq!(world.log[0], told);
    world.add(&kinds::RESOURCE_CLAIM_TEMPLATES, value!({"metadata": {"namespace": "a", "name": "later"}}));
    settle::<ResourceClaim>(&mut world, |_| false);
    assert_eq!(world.of(CLAIMS).len(), 1);
}

#[test]
fn a_claim_is_deallocated_after_its_last_pod_and_deleted_if_owned_by_it() {
    let mut world = world();
    let first = pod(&mut world, "first", value!([{"name": "gpu", "resourceClaimName": "shared"}]));
    let second = pod(&mut world, "second", value!([{"name": "gpu", "resourceClaimName": "shared"}]));
    let users = [("first", uid_of(&world, &first)), ("second", uid_of(&world, &second)), ("gone", "x".to_owned())];
    let users: Vec<(&str, &str)> = users.iter().map(|(name, uid)| (*name, uid.as_str())).collect();
    let key = claim(&mut world, "shared", &users);
    let reserved = |world: &FakeCluster| {
        let claim = world.get(&kinds::RESOURCE_CLAIMS, &key).unwrap();
        (list(claim, &["status", "reservedFor"]).len(), claim.at(&["status", "allocation"]).is_some())
    };
    check_properties::<ResourceClaim>(&world, |_| false);
    settle::<ResourceClaim>(&mut world, |_| false);
    assert_eq!(reserved(&world), (2, true), "a pod that the server does not know needs nothing");
    end(&mut world, &first);
    settle::<ResourceClaim>(&mut world, |_| false);
    assert_eq!(reserved(&world), (1, true));
    end(&mut world, &second);
    settle::<ResourceClaim>(&mut world, |_| false);
    assert_eq!(reserved(&world), (0, false));
    world.delete(&kinds::RESOURCE_CLAIMS, &key, None, None);
    settle::<ResourceClaim>(&mut world, |_| false);
    assert!(world.get(&kinds::RESOURCE_CLAIMS, &key).is_none());
    let own = pod(&mut world, "own", value!([{"name": "gpu", "resourceClaimTemplateName": "t"}]));
    settle::<ResourceClaim>(&mut world, |_| false);
    end(&mut world, &own);
    settle::<ResourceClaim>(&mut world, |_| false);
    assert!(world.of(CLAIMS).is_empty());
}

#[test]
fn an_unknown_pod_state_does_not_deallocate_a_claim() {
    let mut world = world();
    let key = claim(&mut world, "c", &[("unseen", "u")]);
    world.answer(&all_pods(&key), Err("the server is busy".to_owned()));
    settle::<ResourceClaim>(&mut world, |_| false);
    assert_eq!(world.log, [""; 0]);
    let unseen = value!({"items": [{"metadata": {"namespace": "a", "name": "unseen", "uid": "u"}}]});
    world.answer(&all_pods(&key), Ok(unseen));
    settle::<ResourceClaim>(&mut world, |_| false);
    assert_eq!(world.log, [""; 0], "it is there, only not in the cache");
}

#[test]
fn a_claim_is_reserved_for_a_pod_bound_without_the_scheduler() {
    let mut world = world();
    let key = pod(&mut world, "p", value!([{"name": "gpu", "resourceClaimName": "c"}]));
    world.change(&kinds::PODS, &key, |pod| {
        pod.get_mut("spec").and_then(Value::as_object_mut).unwrap().insert("nodeName", "n");
    });
    let key = claim(&mut world, "c", &[]);
    check_properties::<ResourceClaim>(&world, |_| false);
    settle::<ResourceClaim>(&mut world, |_| false);
    let claim = world.get(&kinds::RESOURCE_CLAIMS, &key).unwrap();
    assert_eq!(text(&claim["status"]["reservedFor"][0], &["name"]), "p");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn properties_hold_in_generated_clusters(pods in prop::collection::vec((0..3usize, 0..3usize), 1..5)) {
        let mut world = world();
        let mut users = Vec::new();
        for (number, (kind, state)) in pods.iter().enumerate() {
            let name = format!("p{number}");
            let wish = [
                value!([{"name": "x", "resourceClaimTemplateName": "t"}]),
                value!([{"name": "x", "resourceClaimName": "c"}]),
                value!([{"name": "x", "resourceClaimTemplateName": "t"}, {"name": "y", "resourceClaimName": "c"}]),
            ];
            let key = pod(&mut world, &name, wish[*kind].clone());
            users.push((name, uid_of(&world, &key)));
            match state {
                0 => end(&mut world, &key),
                1 => world.remove(&kinds::PODS, &key),
                _ => {}
            }
        }
        let users: Vec<(&str, &str)> = users.iter().map(|(name, uid)| (name.as_str(), uid.as_str())).collect();
        let shared = claim(&mut world, "c", &users);
        check_properties::<ResourceClaim>(&world, |_| false);
        settle::<ResourceClaim>(&mut world, |_| false);
        let left = pods.iter().filter(|(_, state)| *state == 2).count();
        let claim = world.get(&kinds::RESOURCE_CLAIMS, &shared).unwrap();
        prop_assert_eq!(list(claim, &["status", "reservedFor"]).len(), left);
        prop_assert_eq!(claim.at(&["status", "allocation"]).is_some(), left > 0);
    }
}
