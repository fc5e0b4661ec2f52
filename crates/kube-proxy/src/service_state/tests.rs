//! Tests of the rules of services and slices.

use apimachinery::value;

use super::*;

fn rules() -> Rules {
    Rules::new(Node { name: "a".into(), zone: String::new() }, false)
}

fn service(more: Value) -> Value {
    let mut service = value!({"spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
        "ports": [{"name": "p", "port": 80, "protocol": "TCP", "nodePort": 30080}]}});
    let spec = service.get_mut("spec").and_then(Value::as_object_mut).unwrap();
    if let Value::Object(more) = more {
        for (key, value) in more {
            spec.insert(key, value);
        }
    }
    service
}

fn slice(endpoints: &[(&str, &str)]) -> Value {
    let list: Vec<Value> =
        endpoints.iter().map(|(ip, node)| value!({"addresses": [(*ip)], "nodeName": (*node)})).collect();
    value!({"metadata": {"namespace": "x", "labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": list, "ports": [{"name": "p", "port": 8080, "protocol": "TCP"}]})
}

/// Formats one line per frontend: old and new state.
fn format_changes(changes: &Changes) -> Vec<String> {
    let way = |way: &Forwarding| match way {
        Forwarding::Endpoints { places, masquerade, affinity_seconds, .. } => {
            let places: Vec<String> = places.iter().map(|(ip, port)| format!("{ip}:{port}")).collect();
            let sticks = affinity_seconds.map(|seconds| format!(" {seconds}s")).unwrap_or_default();
            format!("{} {masquerade:?}{sticks}", places.join(","))
        }
        other => format!("{other:?}"),
    };
    let lines = changes.frontends.iter().map(|(frontend, (_, now))| {
        let at = format!("{}:{}", frontend.address, frontend.port);
        match now {
            None => format!("{at} gone"),
            Some(backend) => {
                let internal = backend.internal.as_ref().map(|it| format!(" inside {}", way(it))).unwrap_or_default();
                let allowed: Vec<String> = backend.allowed.iter().map(|cidr| format!(" from {cidr}")).collect();
                format!("{at} {}{internal}{}", way(&backend.outside), allowed.join(""))
            }
        }
    });
    lines.collect()
}

fn check(service: &Value, endpoints: &[(&str, &str)], expect: &[&str]) {
    let mut rules = rules();
    let key = Key::new("x", "web");
    rules.set_service(&key, Some(service));
    rules.set_slice(&Key::new("x", "web-1"), Some(&slice(endpoints)));
    let changes = rules.changes();
    assert_eq!(format_changes(&changes), expect);
    assert_eq!(format_changes(&rules.everything()), expect, "the same state without existing rules");
    assert!(rules.changes().is_empty(), "a change is returned once");
}

#[test]
fn services_forward_to_their_endpoints() {
    let two = [("10.1.0.1", "a"), ("10.1.0.2", "b")];
    check(
        &service(value!({})),
        &two,
        &[
            "0.0.0.0:30080 10.1.0.1:8080,10.1.0.2:8080 Always",
            "10.96.0.1:80 10.1.0.1:8080,10.1.0.2:8080 ExternalClients",
        ],
    );
    check(&service(value!({})), &[], &["0.0.0.0:30080 Reject", "10.96.0.1:80 Reject"]);
    check(
        &service(value!({"sessionAffinity": "ClientIP", "externalIPs": ["192.0.2.9"],
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}})),
        &[("10.1.0.1", "a")],
        &[
            "0.0.0.0:30080 10.1.0.1:8080 Always 60s",
            "10.96.0.1:80 10.1.0.1:8080 ExternalClients 60s",
            "192.0.2.9:80 10.1.0.1:8080 Always 60s",
        ],
    );
}

#[test]
fn traffic_policy_local_drops_without_local_endpoints() {
    let local = service(value!({"externalTrafficPolicy": "Local"}));
    check(
        &local,
        &[("10.1.0.1", "a"), ("10.1.0.2", "b")],
        &[
            "0.0.0.0:30080 10.1.0.1:8080 Never inside 10.1.0.1:8080,10.1.0.2:8080 Node",
            "10.96.0.1:80 10.1.0.1:8080,10.1.0.2:8080 ExternalClients",
        ],
    );
    check(
        &local,
        &[("10.1.0.2", "b")],
        &["0.0.0.0:30080 Drop inside 10.1.0.2:8080 Node", "10.96.0.1:80 10.1.0.2:8080 ExternalClients"],
    );
    check(
        &service(value!({"internalTrafficPolicy": "Local"})),
        &[("10.1.0.2", "b")],
        &["0.0.0.0:30080 10.1.0.2:8080 Always", "10.96.0.1:80 Drop"],
    );
}

#[test]
fn load_balancer_source_ranges_are_enforced() {
    let mut balanced = service(value!({"loadBalancerSourceRanges": ["198.51.100.0/24"]}));
    let status = value!({"loadBalancer": {"ingress": [{"ip": "192.0.2.50"}, {"ip": "192.0.2.51", "ipMode": "Proxy"}]}});
    balanced.as_object_mut().unwrap().insert("status", status);
    check(
        &balanced,
        &[("10.1.0.1", "a")],
        &[
            "0.0.0.0:30080 10.1.0.1:8080 Always",
            "10.96.0.1:80 10.1.0.1:8080 ExternalClients",
            "192.0.2.50:80 10.1.0.1:8080 Always from 198.51.100.0/24",
        ],
    );
    // Ranges within others are redundant, and the kernel would reject them.
    let ranges = value!(["10.1.0.0/16", "10.0.0.0/8", "198.51.100.7/24", "198.51.100.0/24", "fd00::/8"]);
    balanced.get_mut("spec").and_then(Value::as_object_mut).unwrap().insert("loadBalancerSourceRanges", ranges);
    check(
        &balanced,
        &[("10.1.0.1", "a")],
        &[
            "0.0.0.0:30080 10.1.0.1:8080 Always",
            "10.96.0.1:80 10.1.0.1:8080 ExternalClients",
            "192.0.2.50:80 10.1.0.1:8080 Always from 10.0.0.0/8 from 198.51.100.0/24",
        ],
    );
}

#[test]
fn changes_contain_only_differences() {
    let mut rules = rules();
    let (web, other) = (Key::new("x", "web"), Key::new("x", "other"));
    rules.set_service(&web, Some(&service(value!({}))));
    rules.set_service(&other, Some(&value!({"spec": {"clusterIP": "10.96.0.2", "ports": [{"port": 80}]}})));
    rules.changes();
    rules.set_slice(&Key::new("x", "web-1"), Some(&slice(&[("10.1.0.1", "a")])));
    assert_eq!(
        format_changes(&rules.changes()),
        ["0.0.0.0:30080 10.1.0.1:8080 Always", "10.96.0.1:80 10.1.0.1:8080 ExternalClients"]
    );
    rules.set_slice(&Key::new("x", "web-1"), Some(&slice(&[("10.1.0.1", "a")])));
    assert!(rules.changes().is_empty(), "the same again");
    rules.set_service(&other, None);
    assert_eq!(format_changes(&rules.changes()), ["10.96.0.2:80 gone"]);
    // Two services claim one node port: the first by name gets it, and the other after its deletion.
    let rival = value!({"spec": {"clusterIP": "10.96.0.3", "ports": [{"port": 81, "nodePort": 30080}]}});
    rules.set_service(&other, Some(&rival));
    assert_eq!(format_changes(&rules.changes()), ["0.0.0.0:30080 Reject", "10.96.0.3:81 Reject"]);
    rules.set_service(&other, None);
    assert_eq!(format_changes(&rules.changes()), ["0.0.0.0:30080 10.1.0.1:8080 Always", "10.96.0.3:81 gone"]);
}

#[test]
fn services_of_other_proxies_are_ignored() {
    for foreign in [
        value!({"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}),
        value!({"spec": {"type": "ExternalName", "externalName": "a.b"}}),
        value!({"spec": {"ports": [{"port": 80}]}}),
        value!({"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": "other"}},
            "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}}),
        value!({}),
    ] {
        check(&foreign, &[("10.1.0.1", "a")], &[]);
    }
}

#[test]
fn health_check_reports_local_endpoints() {
    let mut rules = rules();
    let key = Key::new("x", "web");
    let local = service(value!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}));
    rules.set_service(&key, Some(&local));
    rules.changes();
    assert_eq!(rules.health()[&32000].local, 0);
    rules.set_slice(&Key::new("x", "web-1"), Some(&slice(&[("10.1.0.1", "a"), ("10.1.0.2", "b")])));
    rules.changes();
    assert_eq!(rules.health()[&32000], Health { service: key.clone(), local: 1 });
    rules.set_service(&key, None);
    rules.changes();
    assert!(rules.health().is_empty());
}
