//! Tests of address assignment to Services of type LoadBalancer.

use controller::testing::{FakeCluster, check_properties_with, run_until_stable_with};

use super::*;

fn pool(text: &str) -> Option<Config> {
    Some(Config::parse(text).unwrap())
}

fn new_cluster() -> FakeCluster {
    let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    for (name, ip, ready) in [("a", "192.0.2.1", "True"), ("b", "192.0.2.2", "True"), ("c", "192.0.2.3", "Unknown")] {
        cluster.add(
            &kinds::NODES,
            value!({"metadata": {"name": name}, "status": {
                "addresses": [{"type": "InternalIP", "address": ip}, {"type": "Hostname", "address": name}],
                "conditions": [{"type": "Ready", "status": ready}]}}),
        );
    }
    cluster
}

fn service(cluster: &mut FakeCluster, name: &str, age_seconds: i64, more: Value) -> Key {
    cluster.now = Time::from_unix(1_700_000_000 - age_seconds, 0);
    let mut spec = value!({"type": "LoadBalancer", "ports": [{"port": 80}]});
    if let Value::Object(more) = more {
        for (key, value) in more {
            spec.as_object_mut().unwrap().insert(key, value);
        }
    }
    let mut object = value!({"metadata": {"name": name, "namespace": "x"}});
    object.as_object_mut().unwrap().insert("spec", spec);
    cluster.add(&kinds::SERVICES, object)
}

fn check(config: &Option<Config>, cluster: &mut FakeCluster, expect: &[(&str, &str)]) {
    check_properties_with::<ServiceLb>(config, cluster, |_| false);
    run_until_stable_with::<ServiceLb>(config, cluster, |_| false);
    for (name, addresses) in expect {
        let object = cluster.get(&kinds::SERVICES, &Key::new("x", *name)).unwrap();
        let given: Vec<String> = given(object).iter().map(ToString::to_string).collect();
        assert_eq!(given.join(" "), *addresses, "{name}");
    }
}

#[test]
fn services_get_the_addresses_of_ready_nodes() {
    let (config, mut cluster) = (pool(""), new_cluster());
    service(&mut cluster, "old", 9, value!({}));
    service(&mut cluster, "new", 1, value!({}));
    service(&mut cluster, "other-port", 1, value!({"ports": [{"port": 81}]}));
    service(&mut cluster, "foreign", 1, value!({"loadBalancerClass": "example.org/x", "ports": [{"port": 82}]}));
    service(&mut cluster, "ours", 1, value!({"loadBalancerClass": CLASS, "ports": [{"port": 82}]}));
    service(&mut cluster, "six", 1, value!({"ipFamilies": ["IPv6"], "ports": [{"port": 83}]}));
    let both = "192.0.2.1 192.0.2.2";
    check(
        &config,
        &mut cluster,
        &[("old", both), ("new", ""), ("other-port", both), ("foreign", ""), ("ours", both), ("six", "")],
    );
    // The port becomes free, and a node becomes ready.
    cluster.remove(&kinds::SERVICES, &Key::new("x", "old"));
    cluster.change(&kinds::NODES, &Key::cluster("c"), |node| {
        let status = node.get_mut("status").and_then(Value::as_object_mut).unwrap();
        status.insert("conditions", value!([{"type": "Ready", "status": "True"}]));
    });
    check(&config, &mut cluster, &[("new", "192.0.2.1 192.0.2.2 192.0.2.3")]);
}

#[test]
fn reserved_node_ports_are_not_assigned() {
    let config = Some(Config { pool: Vec::new(), reserved: [22, 6443].into() });
    let mut cluster = new_cluster();
    cluster.change(&kinds::NODES, &Key::cluster("c"), |node| {
        let status = node.get_mut("status").and_then(Value::as_object_mut).unwrap();
        status.insert("daemonEndpoints", value!({"kubeletEndpoint": {"Port": 10350}}));
    });
    for port in [22, 80, 6443, 10350] {
        let ports = value!([{"port": 8000, "name": "a"}, {"port": (i64::from(port)), "protocol": "UDP", "name": "b"}]);
        service(&mut cluster, &format!("on-{port}"), 1, value!({"ports": ports}));
    }
    check(&config, &mut cluster, &[("on-22", ""), ("on-80", "192.0.2.1 192.0.2.2"), ("on-6443", ""), ("on-10350", "")]);
    let config = Config { pool: Vec::new(), reserved: [22].into() };
    let own = value!({"spec": {"type": "LoadBalancer", "ports": [{"port": 22}]}});
    let [Err(message)] = &of_nodes(&[&own], &[], &config.reserved)[..] else { panic!("it is refused") };
    assert_eq!(message, "port 22 is reserved for the nodes");
}

#[test]
fn pool_addresses_are_unique_and_stable() {
    let (config, mut cluster) = (pool("198.51.100.1-198.51.100.3, 2001:db8::/126"), new_cluster());
    service(&mut cluster, "asks", 1, value!({"loadBalancerIP": "198.51.100.1"}));
    service(&mut cluster, "both", 9, value!({"ipFamilies": ["IPv6", "IPv4"]}));
    check(&config, &mut cluster, &[("asks", "198.51.100.1"), ("both", "198.51.100.2 2001:db8::")]);
    service(&mut cluster, "older", 20, value!({}));
    service(&mut cluster, "late", 0, value!({}));
    service(&mut cluster, "taken", 0, value!({"loadBalancerIP": "198.51.100.2"}));
    check(
        &config,
        &mut cluster,
        &[
            ("asks", "198.51.100.1"),
            ("both", "198.51.100.2 2001:db8::"),
            ("older", "198.51.100.3"),
            ("late", ""),
            ("taken", ""),
        ],
    );
    cluster.change(&kinds::SERVICES, &Key::new("x", "older"), |service| {
        service.get_mut("spec").and_then(Value::as_object_mut).unwrap().insert("type", "ClusterIP");
    });
    check(&config, &mut cluster, &[("older", "")]);
    check(&config, &mut cluster, &[("late", "198.51.100.3")]);
}

#[test]
fn no_address_is_assigned_without_a_configuration() {
    let (config, mut cluster) = (None, new_cluster());
    service(&mut cluster, "web", 1, value!({}));
    check(&config, &mut cluster, &[("web", "")]);
}

#[test]
fn pools_are_ranges_cidrs_and_addresses() {
    let check = |text: &str, expect: &str| {
        let rendered = Config::parse(text).map(|config| {
            config.pool.iter().map(|(first, last)| format!("{first}-{last}")).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(rendered.as_deref().unwrap_or("none"), expect, "{text}");
    };
    check("192.0.2.7", "192.0.2.7-192.0.2.7");
    check("192.0.2.7/30,2001:db8::1-2001:db8::2", "192.0.2.4-192.0.2.7 2001:db8::1-2001:db8::2");
    check("0.0.0.0/0", "0.0.0.0-255.255.255.255");
    check("", "");
    for wrong in ["x", "192.0.2.9-192.0.2.1", "192.0.2.1-::1", "192.0.2.1/33", "1/2/3"] {
        check(wrong, "none");
    }
}
