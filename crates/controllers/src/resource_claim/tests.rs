use apimachinery::value;
use controller::testing::{FakeCluster, check_properties, run_until_stable};
use proptest::prelude::*;

use super::*;

fn new_cluster() -> FakeCluster {
    let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    let spec = value!({"metadata": {"labels": {"l": "v"}}, "spec": {"devices": {"requests": [{"name": "r"}]}}});
    cluster.add(&kinds::RESOURCE_CLAIM_TEMPLATES, value!({"metadata": {"namespace": "a", "name": "t"}, "spec": spec}));
    cluster
}

fn pod(cluster: &mut FakeCluster, name: &str, claim_requests: Value) -> Key {
    let metadata = value!({"namespace": "a", "name": name});
    cluster.add(&kinds::PODS, value!({"metadata": metadata, "spec": {"resourceClaims": claim_requests}}))
}

fn claim(cluster: &mut FakeCluster, name: &str, users: &[(&str, &str)]) -> Key {
    let users: Vec<Value> =
        users.iter().map(|(name, uid)| value!({"resource": "pods", "name": (*name), "uid": (*uid)})).collect();
    let key = cluster.add(
        &kinds::RESOURCE_CLAIMS,
        value!({"metadata": {"namespace": "a", "name": name, "finalizers": [FINALIZER]},
            "status": {"allocation": {"devices": {}}, "reservedFor": users}}),
    );
    cluster.set_response(&all_pods(&key), Ok(value!({"items": []})));
    key
}

fn uid_of(cluster: &FakeCluster, key: &Key) -> String {
    Meta::of(cluster.get(&kinds::PODS, key).unwrap()).uid().to_owned()
}

fn end(cluster: &mut FakeCluster, key: &Key) {
    cluster.change(&kinds::PODS, key, |pod| {
        pod.as_object_mut().unwrap().insert("status", value!({"phase": "Succeeded"}));
    });
}

#[test]
fn claim_is_created_once_and_recorded_in_the_pod_status() {
    let mut cluster = new_cluster();
    let key = pod(&mut cluster, "p", value!([{"name": "gpu", "resourceClaimTemplateName": "t"}]));
    check_properties::<ResourceClaim>(&cluster, |_| false);
    run_until_stable::<ResourceClaim>(&mut cluster, |_| false);
    let claims = cluster.of(RESOURCE_CLAIMS);
    let made = &claims.iter().next().unwrap().value;
    let name = Meta::of(made).name();
    assert!(claims.len() == 1 && name.starts_with("p-gpu-"), "{name}");
    assert_eq!(Meta::of(made).label("l"), Some("v"));
    assert_eq!(Meta::of(made).annotation(POD_CLAIM_NAME), Some("gpu"));
    assert!(made.at(&["spec", "devices", "requests"]).is_some());
    let pod = cluster.get(&kinds::PODS, &key).unwrap();
    assert_eq!(pod["status"]["resourceClaimStatuses"], value!([{"name": "gpu", "resourceClaimName": name}]));
}

#[test]
fn missing_template_is_reported_and_retried() {
    let mut cluster = new_cluster();
    pod(&mut cluster, "p", value!([{"name": "gpu", "resourceClaimTemplateName": "later"}]));
    run_until_stable::<ResourceClaim>(&mut cluster, |_| false);
    let expected = "event Pod a/p Warning FailedResourceClaimCreation: PodResourceClaim gpu: resource claim template \"later\": \
        resourceclaimtemplate.resource.k8s.io \"later\" not found";
    assert_eq!(cluster.log[0], expected);
    cluster.add(&kinds::RESOURCE_CLAIM_TEMPLATES, value!({"metadata": {"namespace": "a", "name": "later"}}));
    run_until_stable::<ResourceClaim>(&mut cluster, |_| false);
    assert_eq!(cluster.of(RESOURCE_CLAIMS).len(), 1);
}

#[test]
fn claim_is_deallocated_after_its_last_pod_and_deleted_if_owned_by_it() {
    let mut cluster = new_cluster();
    let first = pod(&mut cluster, "first", value!([{"name": "gpu", "resourceClaimName": "shared"}]));
    let second = pod(&mut cluster, "second", value!([{"name": "gpu", "resourceClaimName": "shared"}]));
    let users = [("first", uid_of(&cluster, &first)), ("second", uid_of(&cluster, &second)), ("gone", "x".to_owned())];
    let users: Vec<(&str, &str)> = users.iter().map(|(name, uid)| (*name, uid.as_str())).collect();
    let key = claim(&mut cluster, "shared", &users);
    let reserved = |cluster: &FakeCluster| {
        let claim = cluster.get(&kinds::RESOURCE_CLAIMS, &key).unwrap();
        (claim.list_at(&["status", "reservedFor"]).len(), claim.at(&["status", "allocation"]).is_some())
    };
    check_properties::<ResourceClaim>(&cluster, |_| false);
    run_until_stable::<ResourceClaim>(&mut cluster, |_| false);
    assert_eq!(reserved(&cluster), (2, true), "a pod that does not exist needs no action");
    end(&mut cluster, &first);
    run_until_stable::<ResourceClaim>(&mut cluster, |_| false);
    assert_eq!(reserved(&cluster), (1, true));
    end(&mut cluster, &second);
    run_until_stable::<ResourceClaim>(&mut cluster, |_| false);
    assert_eq!(reserved(&cluster), (0, false));
    cluster.delete(&kinds::RESOURCE_CLAIMS, &key, None, None);
    run_until_stable::<ResourceClaim>(&mut cluster, |_| false);
    assert!(cluster.get(&kinds::RESOURCE_CLAIMS, &key).is_none());
    let own = pod(&mut cluster, "own", value!([{"name": "gpu", "resourceClaimTemplateName": "t"}]));
    run_until_stable::<ResourceClaim>(&mut cluster, |_| false);
    end(&mut cluster, &own);
    run_until_stable::<ResourceClaim>(&mut cluster, |_| false);
    assert!(cluster.of(RESOURCE_CLAIMS).is_empty());
}

#[test]
fn unknown_pod_state_does_not_deallocate_a_claim() {
    let mut cluster = new_cluster();
    let key = claim(&mut cluster, "c", &[("unseen", "u")]);
    cluster.set_response(&all_pods(&key), Err("the server is busy".to_owned()));
    run_until_stable::<ResourceClaim>(&mut cluster, |_| false);
    assert_eq!(cluster.log, [""; 0]);
    let unseen = value!({"items": [{"metadata": {"namespace": "a", "name": "unseen", "uid": "u"}}]});
    cluster.set_response(&all_pods(&key), Ok(unseen));
    run_until_stable::<ResourceClaim>(&mut cluster, |_| false);
    assert_eq!(cluster.log, [""; 0], "the object exists but is not in the cache");
}

#[test]
fn claim_is_reserved_for_a_pod_bound_without_the_scheduler() {
    let mut cluster = new_cluster();
    let key = pod(&mut cluster, "p", value!([{"name": "gpu", "resourceClaimName": "c"}]));
    cluster.change(&kinds::PODS, &key, |pod| {
        pod.get_mut("spec").and_then(Value::as_object_mut).unwrap().insert("nodeName", "n");
    });
    let key = claim(&mut cluster, "c", &[]);
    check_properties::<ResourceClaim>(&cluster, |_| false);
    run_until_stable::<ResourceClaim>(&mut cluster, |_| false);
    let claim = cluster.get(&kinds::RESOURCE_CLAIMS, &key).unwrap();
    assert_eq!(claim["status"]["reservedFor"][0].text_at(&["name"]), "p");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn properties_hold_in_generated_clusters(pods in prop::collection::vec((0..3usize, 0..3usize), 1..5)) {
        let mut cluster = new_cluster();
        let mut users = Vec::new();
        for (number, (kind, state)) in pods.iter().enumerate() {
            let name = format!("p{number}");
            let claim_requests = [
                value!([{"name": "x", "resourceClaimTemplateName": "t"}]),
                value!([{"name": "x", "resourceClaimName": "c"}]),
                value!([{"name": "x", "resourceClaimTemplateName": "t"}, {"name": "y", "resourceClaimName": "c"}]),
            ];
            let key = pod(&mut cluster, &name, claim_requests[*kind].clone());
            users.push((name, uid_of(&cluster, &key)));
            match state {
                0 => end(&mut cluster, &key),
                1 => cluster.remove(&kinds::PODS, &key),
                _ => {}
            }
        }
        let users: Vec<(&str, &str)> = users.iter().map(|(name, uid)| (name.as_str(), uid.as_str())).collect();
        let shared = claim(&mut cluster, "c", &users);
        check_properties::<ResourceClaim>(&cluster, |_| false);
        run_until_stable::<ResourceClaim>(&mut cluster, |_| false);
        let left = pods.iter().filter(|(_, state)| *state == 2).count();
        let claim = cluster.get(&kinds::RESOURCE_CLAIMS, &shared).unwrap();
        prop_assert_eq!(claim.list_at(&["status", "reservedFor"]).len(), left);
        prop_assert_eq!(claim.at(&["status", "allocation"]).is_some(), left > 0);
    }
}
