//! Tests that the `nft` tool can list the rules.

use std::process::Command;

use apimachinery::{Value, value};
use kube_proxy::config::Mode;
use kube_proxy::policy::sync::Enforcer;
use netlink::{Cidr, Protocol};
use pod_network::routed::Config;
use pod_network::{PortMapping, RoutedNetwork};

use crate::fixture::{Fixture, plain};
use crate::policies::{enforce, rows};
use crate::topology::Namespace;

/// Returns the output of `nft list` in a namespace. `nft` aborts on rules that it does not understand and reports
/// omissions.
fn list(node: &Namespace, what: &str) -> String {
    let output = node.enter(|| Command::new("nft").arg("list").args(what.split(' ')).output().unwrap());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "nft list {what}: {}: {stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn with(mut spec: Value, fields: &[(&str, Value)]) -> Value {
    for (name, value) in fields {
        spec.as_object_mut().unwrap().insert(*name, value.clone());
    }
    spec
}

/// Creates services of every type, each with endpoints.
fn services(fixture: &mut Fixture) {
    let sticky = || ("sessionAffinity", Value::from("ClientIP"));
    let local = || ("externalTrafficPolicy", Value::from("Local"));
    let six = |address: &str, port: i64| value!({"clusterIP": address, "ports": [{"name": "p", "port": 80, "nodePort": port}]});
    let udp = value!({"clusterIP": "10.96.0.10", "ports": [{"name": "u", "port": 53, "protocol": "UDP"}]});
    let node_port = |address: &str, port: i64| value!({"clusterIP": address, "ports": [{"name": "p", "port": 80, "nodePort": port}]});
    let guarded = [("loadBalancerSourceRanges", value!(["198.51.100.0/24", "203.0.113.7/32"]))];
    for (name, spec) in [
        ("plain", plain("10.96.0.1")),
        ("six", six("fd00:96::1", 30086)),
        ("udp", udp),
        ("sticky", with(node_port("10.96.0.2", 30082), &[sticky()])),
        ("sticky-six", with(six("fd00:96::2", 30087), &[sticky()])),
        ("local", with(node_port("10.96.0.4", 30084), &[local(), sticky()])),
        ("local-six", with(six("fd00:96::4", 30088), &[local()])),
        ("nobody", node_port("10.96.0.5", 30085)),
    ] {
        fixture.service(name, spec);
        let endpoints: &[u8] = match name {
            "nobody" => &[],
            // The test calls this service, so all its endpoints must exist.
            "sticky" => &[2, 3],
            _ => &[2, 3, 200],
        };
        fixture.endpoints(name, endpoints);
    }
    fixture.balanced("guarded", &["192.0.2.200"], with(node_port("10.96.0.3", 30083), &guarded));
    fixture.endpoints("guarded", &[4]);
    fixture.sync();
}

#[test]
fn nft_lists_the_rules_of_services_policies_and_pods() {
    let mut fixture = Fixture::new(Mode::Nftables);
    services(&mut fixture);
    let ruleset = list(&fixture.topology.node, "ruleset");
    for part in [
        "table ip kube-proxy {",
        "table ip6 kube-proxy {",
        "tcp . 10.96.0.1 . 80 : goto address-3-foreign",
        "tcp . fd00:96::2 . 80 : goto address-3-foreign-10800s",
        "update @affinity {",
        "timeout 3h",
        "tcp . 10.96.0.5 . 80 : goto reject",
        "map @endpoints",
        "198.51.100.0/24",
        "masquerade",
    ] {
        assert!(ruleset.contains(part), "{part:?} is not in {ruleset}");
    }
    // Session affinity works with the listed rules.
    let served = || fixture.topology.node.call("10.96.0.2:80");
    assert!((0..5).all(|_| served().is_ok()));
    assert!(list(&fixture.topology.node, "map ip kube-proxy affinity").contains("tcp . 10.96.0.2 . 80 . "));

    let state = tempfile::tempdir().unwrap();
    let config = Config {
        pod_cidrs: Cidr::parse_list("10.244.9.0/24,fd00:9::/64").unwrap(),
        table: "other-pods".to_owned(),
        ..Config::new(state.path())
    };
    let pod = Namespace::new();
    let ports = [PortMapping { protocol: Protocol::Tcp, host_port: 8000, container_port: 80, host_ip: None }];
    let network = RoutedNetwork::new(config);
    fixture.topology.node.enter(|| network.add(&pod.path, "with-a-host-port", "eth0", &ports)).unwrap();
    let ruleset = list(&fixture.topology.node, "ruleset");
    assert!(ruleset.contains("table ip other-pods {") && ruleset.contains(". 8000 : 10.244.9."), "{ruleset}");

    let mut enforcer = Enforcer::default();
    for (what, policies, _) in rows().into_iter().filter(|(_, policies, _)| !policies.is_empty()) {
        enforce(&fixture.topology.node, &mut enforcer, &policies);
        let ruleset = list(&fixture.topology.node, "ruleset");
        assert!(ruleset.contains("jump allow-"), "{what}: {ruleset}");
    }
    list(&fixture.topology.node, "tables");
}
