use apimachinery::value;
use controller::testing::{FakeCluster, check_properties, run_until_stable};

use super::*;

fn new_cluster() -> FakeCluster {
    let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    let ports = value!([{"name": "h", "port": 80, "targetPort": "http"}, {"name": "d", "port": 53, "protocol": "UDP", "targetPort": 5353}]);
    cluster.add(
        &kinds::SERVICES,
        value!({"metadata": {"namespace": "a", "name": "s", "labels": {"l": "v"}},
            "spec": {"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"}, "ports": ports}}),
    );
    pod(&mut cluster, "x", "10.1.0.1", "True", value!([{"name": "http", "containerPort": 9090}]));
    pod(&mut cluster, "y", "10.1.0.2", "True", value!([]));
    cluster
}

fn pod(cluster: &mut FakeCluster, name: &str, ip: &str, ready: &str, ports: Value) {
    cluster.add(
        &kinds::PODS,
        value!({"metadata": {"namespace": "a", "name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": ports}]},
            "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
                "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2023-11-14T22:13:20Z"}]}}),
    );
}

/// Formats each subset as `ready addresses|unready addresses at ports`.
fn published(cluster: &FakeCluster) -> Vec<String> {
    let endpoints = cluster.get(&kinds::ENDPOINTS, &Key::new("a", "s")).unwrap();
    let join = |items: &[Value], field: &str| {
        let addresses: Vec<String> = items.iter().map(|it| it[field].to_string().replace('"', "")).collect();
        addresses.join(",")
    };
    subsets::read(endpoints)
        .iter()
        .map(|it| format!("{}|{} at {}", join(&it.ready, "ip"), join(&it.unready, "ip"), join(&it.ports, "port")))
        .collect()
}

#[test]
fn ports_with_equal_addresses_share_a_subset() {
    let mut cluster = new_cluster();
    check_properties::<Endpoints>(&cluster, |_| false);
    run_until_stable::<Endpoints>(&mut cluster, |_| false);
    assert_eq!(published(&cluster), ["10.1.0.1,10.1.0.2| at 5353", "10.1.0.1| at 9090"]);
    let endpoints = cluster.get(&kinds::ENDPOINTS, &Key::new("a", "s")).unwrap();
    let meta = Meta::of(endpoints);
    assert_eq!((meta.label("l"), meta.label(MANAGED_BY)), (Some("v"), Some(MANAGER)));
    assert_eq!(meta.annotation(service::TRIGGER), Some("2023-11-14T22:13:20Z"));
    assert_eq!(endpoints["subsets"][0]["addresses"][0]["targetRef"]["name"], "x".into());
}

#[test]
fn addresses_follow_readiness() {
    let mut cluster = new_cluster();
    pod(&mut cluster, "z", "10.1.0.3", "False", value!([]));
    run_until_stable::<Endpoints>(&mut cluster, |_| false);
    assert_eq!(published(&cluster), ["10.1.0.1,10.1.0.2|10.1.0.3 at 5353", "10.1.0.1| at 9090"]);
    cluster.change(&kinds::PODS, &Key::new("a", "x"), |pod| {
        *pod = apimachinery::patch::merge::apply(pod.take(), value!({"status": {"phase": "Succeeded"}}));
    });
    cluster.delete(&kinds::PODS, &Key::new("a", "y"), None, None);
    run_until_stable::<Endpoints>(&mut cluster, |_| false);
    assert_eq!(published(&cluster), ["|10.1.0.3 at 5353"], "finished or terminating pods are not endpoints");
}

#[test]
fn managed_endpoints_are_deleted_with_their_service() {
    let mut cluster = new_cluster();
    run_until_stable::<Endpoints>(&mut cluster, |_| false);
    cluster.remove(&kinds::SERVICES, &Key::new("a", "s"));
    let plan = controller::decide::<Endpoints>(&cluster.cache::<Endpoints>(), &(), &Key::new("a", "s"), cluster.now);
    assert_eq!(plan.to_string(), "delete endpoints a/s\n");
}

#[test]
fn endpoints_are_truncated_to_a_thousand_addresses_and_annotated() {
    let many: Vec<Value> = (0..1200).map(|at| value!({"ip": (format!("10.0.{}.{}", at / 250, at % 250))})).collect();
    let whole = vec![Subset { ready: many[..600].to_vec(), unready: many[600..].to_vec(), ports: Vec::new() }];
    let (cut, truncated) = subsets::truncate(whole, 1000);
    assert_eq!((cut[0].ready.len(), cut[0].unready.len(), truncated), (600, 400, true));
}
