//! Services in network namespaces: rules in the kernel, and connections through them. Needs root.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

#[path = "../../../net/tests/network/world.rs"]
mod world;

use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use machinery::{Key, Value, value};
use net::routed::Config;
use net::{Cidr, Routed};
use proxy::nftables::{Settings, Writer, no_rules};
use proxy::{Node, Rules};
use world::{Namespace, World, is_root};

const PODS: &str = "10.244.1.0/24,fd00:1::/64";

/// A node with three pods that serve, and a proxy.
struct Fixture {
    world: World,
    pods: Vec<Namespace>,
    rules: Rules,
    writer: Writer,
    _state: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let world = World::new();
        let state = tempfile::tempdir().unwrap();
        let network = Routed::new(Config { pod_cidrs: Cidr::parse_list(PODS).unwrap(), ..Config::new(state.path()) });
        let pods: Vec<Namespace> = (0..3).map(|_| Namespace::new()).collect();
        for (number, pod) in pods.iter().enumerate() {
            world.node.enter(|| network.add(&pod.path, &number.to_string(), "eth0", &[])).unwrap();
            pod.serve("0.0.0.0:8080");
            pod.serve("[::]:8081");
        }
        // Outside knows the way to services, as a router in front of the node would.
        world.outside.run("ip route add 10.96.0.0/16 via 192.0.2.1\nip route add 192.0.2.128/25 via 192.0.2.1");
        let rules = Rules::new(Node { name: "a".into(), zone: String::new() }, false);
        let mut fixture = Self { world, pods, rules, writer: Writer::default(), _state: state };
        let everything = fixture.rules.everything();
        let batch = fixture.writer.everything(settings(), &everything);
        fixture.world.node.enter(|| batch.commit()).unwrap();
        fixture
    }

    fn service(&mut self, name: &str, spec: Value) {
        let mut object = value!({});
        object.as_object_mut().unwrap().insert("spec", spec);
        self.rules.set_service(&Key::new("x", name), Some(&object));
    }

    /// Endpoints by the last part of their address; those from 100 on are elsewhere.
    fn endpoints(&mut self, service: &str, last: &[u8]) {
        let one = |last: &u8| {
            let node = if *last < 100 { "a" } else { "b" };
            value!({"addresses": [(format!("10.244.1.{last}"))], "nodeName": node})
        };
        let list: Vec<Value> = last.iter().map(one).collect();
        let slice = value!({"metadata": {"namespace": "x", "labels": {"kubernetes.io/service-name": service}},
            "endpoints": list, "ports": [{"name": "p", "port": 8080, "protocol": "TCP"},
                {"name": "u", "port": 5353, "protocol": "UDP"}]});
        self.rules.set_slice(&Key::new("x", service), Some(&slice));
    }

    fn sync(&mut self) {
        let changes = self.rules.changes();
        let batch = self.writer.change(&changes);
        self.world.node.enter(|| batch.commit()).unwrap();
    }
}

fn settings() -> Settings {
    Settings {
        pods: Cidr::parse_list(PODS).unwrap(),
        node_addresses: vec![ip("192.0.2.1"), ip("2001:db8::1")],
        mark: 0x4000,
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn plain(cluster_ip: &str) -> Value {
    value!({"clusterIP": cluster_ip, "ports": [{"name": "p", "port": 80, "nodePort": 30080}]})
}

#[test]
fn services_lead_to_endpoints_from_everywhere() {
    if !is_root() {
        return;
    }
    let mut fixture = Fixture::new();
    fixture.service("web", plain("10.96.0.1"));
    fixture.sync();
    let refused = fixture.pods[0].call("10.96.0.1:80").unwrap_err();
    assert!(refused.contains("refused"), "nobody is there: {refused}");
    fixture.endpoints("web", &[3]);
    fixture.sync();
    let Fixture { world, pods, .. } = &fixture;
    let check = |from: &Namespace, to: &str, expect: &str| assert_eq!(from.call(to), Ok(ip(expect)), "to {to}");
    // Pods are who they are; others come back this way; an endpoint may come to itself.
    check(&pods[0], "10.96.0.1:80", "10.244.1.2");
    check(&pods[1], "10.96.0.1:80", "10.244.1.1");
    check(&world.node, "10.96.0.1:80", "10.244.1.1");
    check(&world.outside, "10.96.0.1:80", "10.244.1.1");
    check(&world.outside, "192.0.2.1:30080", "10.244.1.1");
    check(&world.node, "192.0.2.1:30080", "10.244.1.1");
    check(&pods[0], "192.0.2.1:30080", "10.244.1.1");
    fixture.endpoints("web", &[]);
    fixture.sync();
    assert!(fixture.world.outside.call("192.0.2.1:30080").unwrap_err().contains("refused"));
    fixture.world.node.enter(|| no_rules().commit()).unwrap();
    assert!(!fixture.world.node.run("nft list tables").contains("kube-proxy"), "nothing is left");
}

#[test]
fn connections_spread_over_endpoints_and_stick_where_asked() {
    if !is_root() {
        return;
    }
    let mut fixture = Fixture::new();
    fixture.service("web", plain("10.96.0.1"));
    let mut sticky = plain("10.96.0.2");
    let spec = sticky.as_object_mut().unwrap();
    spec.insert("sessionAffinity", "ClientIP");
    spec.insert("ports", value!([{"name": "p", "port": 80}]));
    fixture.service("sticky", sticky);
    for name in ["web", "sticky"] {
        fixture.endpoints(name, &[2, 3, 4]);
    }
    fixture.sync();
    let served_by = |fixture: &Fixture, address: &str| -> IpAddr {
        // What the kernel remembers of this connection alone says who answered it.
        fixture.world.node.enter(|| net::conntrack::forget(net::Protocol::Tcp, |_| true)).unwrap();
        fixture.world.node.call(address).unwrap();
        served(&fixture.world.node, address.parse().unwrap())
    };
    let plain: std::collections::BTreeSet<IpAddr> = (0..40).map(|_| served_by(&fixture, "10.96.0.1:80")).collect();
    assert_eq!(plain.len(), 3, "{plain:?}");
    let first = served_by(&fixture, "10.96.0.2:80");
    for _ in 0..15 {
        assert_eq!(served_by(&fixture, "10.96.0.2:80"), first);
    }
    // The endpoint goes: its clients go elsewhere, and stick there.
    let IpAddr::V4(gone) = first else { panic!("{first}") };
    let rest: Vec<u8> = [2, 3, 4].into_iter().filter(|last| *last != gone.octets()[3]).collect();
    fixture.endpoints("sticky", &rest);
    fixture.sync();
    let second = served_by(&fixture, "10.96.0.2:80");
    assert_ne!(second, first);
    for _ in 0..10 {
        assert_eq!(served_by(&fixture, "10.96.0.2:80"), second);
    }
}

/// Who answers connections to an address, by what the kernel remembers.
fn served(node: &Namespace, address: std::net::SocketAddr) -> IpAddr {
    let by = std::sync::Mutex::new(None);
    let look = |flow: &net::conntrack::Flow| {
        if flow.to == (address.ip(), address.port()) {
            *by.lock().unwrap() = Some(flow.answered_by.0);
        }
        // It is only looked at.
        false
    };
    node.enter(|| net::conntrack::forget(net::Protocol::Tcp, look)).unwrap();
    by.into_inner().unwrap().unwrap()
}

#[test]
fn traffic_that_stays_keeps_its_source_and_guards_let_only_some_in() {
    if !is_root() {
        return;
    }
    let mut fixture = Fixture::new();
    let mut local = plain("10.96.0.1");
    local.as_object_mut().unwrap().insert("externalTrafficPolicy", "Local");
    fixture.service("local", local);
    fixture.endpoints("local", &[3, 200]);
    let guarded = |ranges: &str| {
        let spec = value!({"clusterIP": "10.96.0.3", "ports": [{"name": "p", "port": 80}],
            "loadBalancerSourceRanges": [ranges]});
        let mut object = value!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.200"}]}}});
        object.as_object_mut().unwrap().insert("spec", spec);
        object
    };
    fixture.rules.set_service(&Key::new("x", "guarded"), Some(&guarded("198.51.100.0/24")));
    fixture.endpoints("guarded", &[4]);
    fixture.sync();
    assert_eq!(fixture.world.outside.call("192.0.2.1:30080"), Ok(ip("192.0.2.2")), "as who it is");
    assert!(fixture.world.outside.call("192.0.2.200:80").is_err(), "not one of those who may");
    fixture.rules.set_service(&Key::new("x", "guarded"), Some(&guarded("192.0.2.0/25")));
    fixture.sync();
    assert_eq!(fixture.world.outside.call("192.0.2.200:80"), Ok(ip("10.244.1.1")));
    // Nobody here, somebody elsewhere: dropped from outside.
    fixture.endpoints("local", &[200]);
    fixture.sync();
    let dropped = fixture.world.outside.call("192.0.2.1:30080").unwrap_err();
    assert!(dropped.contains("timed out"), "{dropped}");
}

#[test]
fn datagrams_find_the_new_endpoint() {
    if !is_root() {
        return;
    }
    let mut fixture = Fixture::new();
    fixture
        .service("dns", value!({"clusterIP": "10.96.0.10", "ports": [{"name": "u", "port": 53, "protocol": "UDP"}]}));
    fixture.endpoints("dns", &[3]);
    fixture.sync();
    for (pod, name) in fixture.pods.iter().zip(["two", "three", "four"]) {
        let socket = pod.enter(|| UdpSocket::bind("0.0.0.0:5353").unwrap());
        std::thread::spawn(move || {
            let mut buffer = [0; 16];
            while let Ok((_, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(name.as_bytes(), from);
            }
        });
    }
    let client = fixture.pods[0].enter(|| UdpSocket::bind("0.0.0.0:4444").unwrap());
    client.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let ask = || {
        client.send_to(b"?", "10.96.0.10:53").unwrap();
        let mut buffer = [0; 16];
        let (length, _) = client.recv_from(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert_eq!(ask(), "three");
    fixture.endpoints("dns", &[4]);
    let changes = fixture.rules.changes();
    let stale = changes.stale_datagrams();
    let batch = fixture.writer.change(&changes);
    let forgotten = fixture.world.node.enter(|| {
        batch.commit().unwrap();
        net::conntrack::forget(net::Protocol::Udp, |flow| {
            stale.iter().any(|(frontend, gone)| flow.to.0 == frontend.address && gone.contains(&flow.answered_by))
        })
    });
    assert_eq!(forgotten.unwrap(), 1);
    assert_eq!(ask(), "four");
}

#[test]
fn five_thousand_services_are_written_at_once_and_one_more_at_no_cost() {
    if !is_root() {
        return;
    }
    let node = Namespace::new();
    let mut rules = Rules::new(Node { name: "a".into(), zone: String::new() }, false);
    let add = |rules: &mut Rules, number: u32| {
        let address = std::net::Ipv4Addr::from(0x0a60_0000 + number);
        let name = format!("s{number}");
        let service = value!({"spec": {"clusterIP": (address.to_string()), "ports": [{"name": "p", "port": 80}]}});
        let list: Vec<Value> = (0..4)
            .map(|at| value!({"addresses": [(std::net::Ipv4Addr::from(0x0af4_0000 + number * 4 + at).to_string())]}))
            .collect();
        let slice = value!({"metadata": {"namespace": "x", "labels": {"kubernetes.io/service-name": (name.as_str())}},
            "endpoints": list, "ports": [{"name": "p", "port": 8080}]});
        rules.set_service(&Key::new("x", name.as_str()), Some(&service));
        rules.set_slice(&Key::new("x", name.as_str()), Some(&slice));
    };
    for number in 1..=5000 {
        add(&mut rules, number);
    }
    let begun = Instant::now();
    rules.changes();
    let decided = begun.elapsed();
    let mut writer = Writer::default();
    let batch = writer.everything(settings(), &rules.everything());
    let made = begun.elapsed();
    node.enter(|| batch.commit()).unwrap();
    let loaded = begun.elapsed();
    add(&mut rules, 5001);
    let begun = Instant::now();
    let batch = writer.change(&rules.changes());
    node.enter(|| batch.commit()).unwrap();
    println!("decided {decided:?}, made {made:?}, loaded {loaded:?}, one more {:?}", begun.elapsed());
    assert_eq!(node.run("nft list map ip kube-proxy endpoints").matches("10.244.").count().min(20_004), 20_004);
}

#[test]
fn policies_let_through_what_they_allow() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    let Fixture { world, pods, .. } = &fixture;
    let range = |text: &str| (ip(text), ip(text));
    let tcp = |first, last| Some(vec![proxy::policy::Ports { protocol: net::Protocol::Tcp, first, last }]);
    let limit = |ingress, egress| proxy::policy::Limits { ingress, egress };
    let enforce = |limits: &[(&str, proxy::policy::Limits)]| {
        let limits = limits.iter().map(|(text, limits)| (ip(text), limits.clone())).collect();
        world.node.enter(|| proxy::policy::table::rules(&limits).commit()).unwrap();
    };
    // 2 and 3 and 4 are the pods; 3 takes only 2, and only at its port.
    let only = vec![proxy::policy::Allow { peers: Some(vec![range("10.244.1.2")]), ports: tcp(8000, 8080) }];
    enforce(&[("10.244.1.3", limit(Some(only.clone()), None)), ("10.244.1.4", limit(None, Some(only.clone())))]);
    assert!(pods[0].call("10.244.1.3:8080").is_ok());
    assert!(pods[2].call("10.244.1.3:8080").is_err(), "not one of those who may");
    assert!(pods[2].call("10.244.1.2:8080").is_ok(), "where it may go");
    assert!(pods[2].call("192.0.2.2:9").unwrap_err().contains("timed out"), "where it may not go");
    assert!(world.node.call("10.244.1.3:8080").is_ok(), "a node may always talk to its pods");
    assert!(pods[1].call("10.244.1.4:8080").is_ok(), "nobody limits who comes");
    // Another port is none of those.
    let other = vec![proxy::policy::Allow { peers: None, ports: tcp(1, 79) }];
    enforce(&[("10.244.1.3", limit(Some(other), None))]);
    assert!(pods[0].call("10.244.1.3:8080").is_err());
    // Nothing is allowed, and of the other family all is.
    enforce(&[("10.244.1.3", limit(Some(Vec::new()), None))]);
    assert!(pods[0].call("10.244.1.3:8080").is_err());
    assert!(pods[0].call("[fd00:1::3]:8081").is_ok());
    world.node.enter(|| proxy::policy::table::no_rules().commit()).unwrap();
    assert!(pods[2].call("10.244.1.3:8080").is_ok());
}
