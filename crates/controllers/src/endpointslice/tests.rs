use api::resources::ENDPOINT_SLICES;
use controller::kinds;
use controller::testing::{FakeCluster, check_properties, run_until_stable, run_until_stable_with};
use proptest::prelude::*;

use super::*;

fn new_cluster(spec: Value) -> FakeCluster {
    let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    let base = value!({"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
        "ports": [{"name": "h", "port": 80, "targetPort": "http"}, {"port": 53, "protocol": "UDP", "targetPort": 5353}]});
    let spec = apimachinery::patch::merge::apply(base, spec);
    cluster.add(
        &kinds::SERVICES,
        value!({"metadata": {"namespace": "a", "name": "s", "labels": {"l": "v"}}, "spec": spec}),
    );
    for (name, zone) in [("n1", "z1"), ("n2", "z2")] {
        cluster.add(
            &kinds::NODES,
            value!({"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
                "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}}),
        );
    }
    cluster
}

fn pod(cluster: &mut FakeCluster, name: &str, node: &str, ips: &[&str], ready: bool) {
    let ips: Vec<Value> = ips.iter().map(|ip| value!({"ip": (*ip)})).collect();
    cluster.add(
        &kinds::PODS,
        value!({"metadata": {"namespace": "a", "name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]},
            "status": {"phase": "Running", "podIPs": ips, "conditions": [
                {"type": "Ready", "status": (if ready { "True" } else { "False" }), "lastTransitionTime": "2023-11-14T22:13:20Z"}]}}),
    );
}

fn slices(cluster: &FakeCluster) -> Vec<Value> {
    cluster.of(ENDPOINT_SLICES).iter().map(|entry| entry.value.clone()).collect()
}

fn reconciled_slices(cluster: &mut FakeCluster) -> Vec<Value> {
    run_until_stable::<EndpointSlice>(cluster, |_| false);
    slices(cluster)
}

#[test]
fn endpoints_have_addresses_conditions_node_zone_and_target() {
    let mut cluster = new_cluster(value!({}));
    pod(&mut cluster, "x", "n1", &["10.1.0.1", "2001:db8::1"], true);
    check_properties::<EndpointSlice>(&cluster, |_| false);
    let slices = reconciled_slices(&mut cluster);
    let [slice] = slices.as_slice() else { panic!("{slices:?}") };
    let expect = r#"[{"addresses":["10.1.0.1"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"n1","targetRef":{"kind":"Pod","name":"x","namespace":"a","uid":"uid-4"},"zone":"z1"}]"#;
    assert_eq!(slice["endpoints"].to_string(), expect);
    let ports = r#"[{"name":"h","port":8080,"protocol":"TCP"},{"name":"","port":5353,"protocol":"UDP"}]"#;
    assert_eq!(slice["ports"].to_string(), ports);
    let meta = Meta::of(slice);
    assert_eq!((meta.generate_name(), meta.label("l"), meta.label(SERVICE_NAME)), ("s-", Some("v"), Some("s")));
    assert_eq!(meta.controller().unwrap().kind(), "Service");
}

#[test]
fn service_without_pods_has_an_empty_slice_that_is_reused() {
    let mut cluster = new_cluster(value!({}));
    let empty = reconciled_slices(&mut cluster);
    assert_eq!((empty.len(), empty[0]["endpoints"].to_string()), (1, "[]".to_owned()));
    pod(&mut cluster, "x", "n1", &["10.1.0.1"], true);
    let filled = reconciled_slices(&mut cluster);
    assert_eq!((filled.len(), Meta::of(&filled[0]).name()), (1, Meta::of(&empty[0]).name()));
    cluster.remove(&kinds::PODS, &Key::new("a", "x"));
    let again = reconciled_slices(&mut cluster);
    assert_eq!(
        (again.len(), again[0]["endpoints"].to_string(), again[0]["ports"].to_string()),
        (1, "[]".into(), "[]".into())
    );
}

#[test]
fn terminating_endpoints_are_serving_but_not_ready() {
    let mut cluster = new_cluster(value!({}));
    pod(&mut cluster, "x", "n1", &["10.1.0.1"], true);
    cluster.delete(&kinds::PODS, &Key::new("a", "x"), None, None);
    let conditions =
        |cluster: &mut FakeCluster| reconciled_slices(cluster)[0]["endpoints"][0]["conditions"].to_string();
    assert_eq!(conditions(&mut cluster), r#"{"ready":false,"serving":true,"terminating":true}"#);
    cluster.change(&kinds::SERVICES, &Key::new("a", "s"), |service| {
        service.get_mut("spec").unwrap().as_object_mut().unwrap().insert("publishNotReadyAddresses", true);
    });
    assert_eq!(conditions(&mut cluster), r#"{"ready":true,"serving":true,"terminating":true}"#);
}

#[test]
fn each_ip_family_has_separate_slices() {
    let mut cluster = new_cluster(value!({"ipFamilies": ["IPv4", "IPv6"]}));
    pod(&mut cluster, "x", "n1", &["10.1.0.1", "2001:db8::1"], true);
    let mut families: Vec<String> =
        reconciled_slices(&mut cluster).iter().map(|it| it.text_at(&["addressType"]).to_owned()).collect();
    families.sort();
    assert_eq!(families, ["IPv4", "IPv6"]);
    cluster.change(&kinds::SERVICES, &Key::new("a", "s"), |service| {
        service.get_mut("spec").unwrap().as_object_mut().unwrap().insert("ipFamilies", value!(["IPv6"]));
    });
    assert_eq!(reconciled_slices(&mut cluster).len(), 1);
}

#[test]
fn hints_follow_the_traffic_distribution_of_the_service() {
    let check = |spec: Value, annotations: Value, expect: &str| {
        let mut cluster = new_cluster(spec);
        cluster.change(&kinds::SERVICES, &Key::new("a", "s"), |it| {
            apimachinery::meta::MetaMut::of(it).unwrap().set("annotations", annotations);
        });
        pod(&mut cluster, "x", "n1", &["10.1.0.1"], true);
        pod(&mut cluster, "y", "n1", &["10.1.0.2"], true);
        let endpoints = reconciled_slices(&mut cluster)[0]["endpoints"].clone();
        assert_eq!(format!("{} {}", endpoints[0]["hints"], endpoints[1]["hints"]), expect);
    };
    let own = r#"{"forZones":[{"name":"z1"}]} {"forZones":[{"name":"z1"}]}"#;
    check(value!({"trafficDistribution": "PreferClose"}), value!({}), own);
    let node = r#"{"forNodes":[{"name":"n1"}],"forZones":[{"name":"z1"}]}"#;
    check(value!({"trafficDistribution": "PreferSameNode"}), value!({}), &format!("{node} {node}"));
    let dealt = r#"{"forZones":[{"name":"z1"}]} {"forZones":[{"name":"z2"}]}"#;
    check(value!({}), value!({"service.kubernetes.io/topology-mode": "Auto"}), dealt);
    check(value!({}), value!({}), "null null");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    #[test]
    fn slices_hold_every_endpoint_once_within_the_limit(
        before in prop::collection::btree_set(0..40u8, 0..30),
        after in prop::collection::btree_set(0..40u8, 0..30),
        slice_max in 1..8usize,
    ) {
        let mut cluster = new_cluster(value!({}));
        let config = Config { slice_max };
        for at in &before {
            pod(&mut cluster, &format!("p{at}"), "n1", &[&format!("10.1.0.{at}")], at % 3 != 0);
        }
        run_until_stable_with::<EndpointSlice>(&config, &mut cluster, |_| false);
        for at in before.difference(&after) {
            cluster.remove(&kinds::PODS, &Key::new("a", format!("p{at}")));
        }
        for at in after.difference(&before) {
            pod(&mut cluster, &format!("p{at}"), "n2", &[&format!("10.1.0.{at}")], at % 3 != 0);
        }
        run_until_stable_with::<EndpointSlice>(&config, &mut cluster, |_| false);
        let slices = slices(&cluster);
        let mut addresses: Vec<String> = Vec::new();
        for slice in &slices {
            let endpoints = slice.list_at(&["endpoints"]);
            prop_assert!(endpoints.len() <= slice_max);
            prop_assert!(!endpoints.is_empty() || slices.len() == 1);
            addresses.extend(endpoints.iter().map(|it| it["addresses"][0].to_string()));
        }
        addresses.sort();
        let mut expect: Vec<String> = after.iter().map(|at| format!("\"10.1.0.{at}\"")).collect();
        expect.sort();
        prop_assert_eq!(addresses, expect);
    }
}
