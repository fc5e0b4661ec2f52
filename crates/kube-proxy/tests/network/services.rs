//! Tests of services in each proxy mode.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use apimachinery::{Value, value};
use kube_proxy::config::Mode;
use kube_proxy::dataplane::clean_up;
use kube_proxy::settings::Settings;

use crate::fixture::{Fixture, ip, plain, settings};
use crate::topology::{Namespace, Stranger, Topology};

const MODES: [Mode; 3] = [Mode::Nftables, Mode::Iptables, Mode::Userspace];

fn in_each_mode(check: impl Fn(Fixture)) {
    for mode in MODES {
        println!("{mode:?}");
        check(Fixture::new(mode));
    }
}

#[test]
fn services_reach_endpoints_from_pods_node_and_outside() {
    in_each_mode(|mut fixture| {
        fixture.service("web", plain("10.96.0.1"));
        fixture.service(
            "six",
            value!({"clusterIP": "fd00:96::1", "ports": [{"name": "p", "port": 80, "nodePort": 30086}]}),
        );
        fixture.sync();
        let error = fixture.pods[0].call("10.96.0.1:80").unwrap_err();
        assert!(error.contains("refused"), "no process listens: {error}");
        fixture.endpoints("web", &[3]);
        fixture.endpoints("six", &[3]);
        fixture.sync();
        let Fixture { topology, pods, .. } = &fixture;
        let check = |from: &Namespace, to: &str, expect: &str| {
            assert_eq!(from.call(to), Ok(ip(fixture.seen(expect))), "to {to}");
        };
        // Pods keep their source address, other clients are masqueraded, and an endpoint can reach itself.
        check(&pods[0], "10.96.0.1:80", "10.244.1.2");
        check(&pods[1], "10.96.0.1:80", "10.244.1.1");
        check(&pods[0], "[fd00:96::1]:80", "fd00:1::2");
        check(&pods[1], "[fd00:96::1]:80", "fd00:1::1");
        for outside in [&topology.node, &topology.outside] {
            check(outside, "10.96.0.1:80", "10.244.1.1");
            check(outside, "192.0.2.1:30080", "10.244.1.1");
            check(outside, "[fd00:96::1]:80", "fd00:1::1");
            check(outside, "[2001:db8::1]:30086", "fd00:1::1");
        }
        check(&pods[0], "192.0.2.1:30080", "10.244.1.1");
        fixture.endpoints("web", &[]);
        fixture.sync();
        assert!(fixture.topology.outside.call("192.0.2.1:30080").unwrap_err().contains("refused"));
        fixture.topology.node.enter(clean_up).unwrap();
        assert_eq!(traces(&fixture.topology.node), "");
    });
}

/// Returns everything that a proxy could leave behind.
fn traces(node: &Namespace) -> String {
    let lines = |text: String| {
        text.lines().filter(|line| line.contains("KUBE-") || line.contains("kube-")).collect::<Vec<_>>().join("\n")
    };
    ["nft list tables", "iptables-save", "ip6tables-save", "ip -o address"]
        .map(|command| lines(node.run(command)))
        .concat()
}

#[test]
fn connections_spread_over_endpoints_with_session_affinity() {
    in_each_mode(|mut fixture| {
        fixture.service("web", plain("10.96.0.1"));
        let mut sticky = plain("10.96.0.2");
        let spec = sticky.as_object_mut().unwrap();
        spec.insert("sessionAffinity", "ClientIP");
        spec.insert("ports", value!([{"name": "i", "port": 90}]));
        fixture.service("sticky", sticky);
        for name in ["web", "sticky"] {
            fixture.endpoints(name, &[2, 3, 4]);
        }
        fixture.sync();
        let served_by = |fixture: &Fixture, address: &str| fixture.topology.node.call(address).unwrap();
        let plain: BTreeSet<IpAddr> = (0..40).map(|_| served_by(&fixture, "10.96.0.1:90")).collect();
        assert_eq!(plain.len(), 3, "{plain:?}");
        let first = served_by(&fixture, "10.96.0.2:90");
        for _ in 0..15 {
            assert_eq!(served_by(&fixture, "10.96.0.2:90"), first);
        }
        // The endpoint is deleted: its clients get another and stick to it.
        let IpAddr::V4(removed) = first else { panic!("{first}") };
        let rest: Vec<u8> = [2, 3, 4].into_iter().filter(|last| *last != removed.octets()[3]).collect();
        fixture.endpoints("sticky", &rest);
        fixture.sync();
        let second = served_by(&fixture, "10.96.0.2:90");
        assert_ne!(second, first);
        for _ in 0..10 {
            assert_eq!(served_by(&fixture, "10.96.0.2:90"), second);
        }
    });
}

#[test]
fn traffic_policy_local_keeps_the_source_and_source_ranges_are_enforced() {
    in_each_mode(|mut fixture| {
        let mut local = plain("10.96.0.1");
        local.as_object_mut().unwrap().insert("externalTrafficPolicy", "Local");
        fixture.service("local", local);
        fixture.endpoints("local", &[3, 200]);
        let guard = |fixture: &mut Fixture, ranges: &[&str]| {
            let ranges: Vec<Value> = ranges.iter().map(|range| Value::from(*range)).collect();
            let spec = value!({"clusterIP": "10.96.0.3", "ports": [{"name": "p", "port": 80}],
                "loadBalancerSourceRanges": ranges});
            fixture.balanced("guarded", &["192.0.2.200"], spec);
            fixture.sync();
        };
        fixture.endpoints("guarded", &[4]);
        guard(&mut fixture, &["198.51.100.0/24"]);
        if fixture.mode == Mode::Userspace {
            // As the announcer of load balancer addresses does.
            fixture.topology.node.run("ip address add 192.0.2.200/32 dev up0");
        }
        let seen = ip(fixture.seen("192.0.2.2"));
        // Internal clients use the address like the cluster IP: pods keep their source address, and the node is
        // masqueraded.
        fixture.endpoints("local", &[3]);
        fixture.sync();
        assert_eq!(fixture.pods[0].call("192.0.2.1:30080"), Ok(ip(fixture.seen("10.244.1.2"))));
        assert_eq!(
            fixture.pods[1].call("192.0.2.1:30080"),
            Ok(ip("10.244.1.1")),
            "an endpoint that connects to itself is masqueraded"
        );
        assert_eq!(fixture.topology.node.call("192.0.2.1:30080"), Ok(ip("10.244.1.1")));
        fixture.endpoints("local", &[3, 200]);
        fixture.sync();
        assert_eq!(fixture.topology.outside.call("192.0.2.1:30080"), Ok(seen), "the pod keeps its source address");
        assert!(
            fixture.topology.outside.call("192.0.2.200:80").is_err(),
            "the client is not in loadBalancerSourceRanges"
        );
        // Overlapping ranges, each replacing the previous.
        for ranges in [&["192.0.2.0/25", "192.0.0.0/8", "192.0.2.2/32"][..], &["192.0.2.0/25"], &["192.0.2.0/24"]] {
            guard(&mut fixture, ranges);
            assert_eq!(fixture.topology.outside.call("192.0.2.200:80"), Ok(ip("10.244.1.1")), "{ranges:?}");
        }
        // Endpoints only on another node: external traffic is dropped.
        fixture.endpoints("local", &[200]);
        fixture.sync();
        let dropped = fixture.topology.outside.call("192.0.2.1:30080").unwrap_err();
        assert!(dropped.contains("timed out") || fixture.mode == Mode::Userspace, "{dropped}");
        // The node and its pods are internal clients and reach the endpoint anyway.
        fixture.slice("local", vec![value!({"addresses": ["10.244.1.3"], "nodeName": "b"})]);
        fixture.sync();
        assert_eq!(fixture.topology.node.call("192.0.2.1:30080"), Ok(ip("10.244.1.1")), "the node itself");
        assert_eq!(fixture.pods[0].call("192.0.2.1:30080"), Ok(ip(fixture.seen("10.244.1.2"))), "a pod");
    });
}

#[test]
fn udp_flows_move_to_the_new_endpoint() {
    in_each_mode(|mut fixture| {
        fixture.service(
            "dns",
            value!({"clusterIP": "10.96.0.10", "ports": [{"name": "u", "port": 53, "protocol": "UDP"}]}),
        );
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
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let query = || {
            client.send_to(b"?", "10.96.0.10:53").unwrap();
            let mut buffer = [0; 16];
            let (length, _) = client.recv_from(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        assert_eq!(query(), "three");
        fixture.endpoints("dns", &[4]);
        fixture.sync();
        assert_eq!(query(), "four");
        // The endpoint is deleted while no proxy is running.
        fixture.endpoints("dns", &[3]);
        fixture.restart();
        assert_eq!(query(), "three");
    });
}

#[test]
fn addresses_of_other_hosts_are_not_taken_over() {
    in_each_mode(|mut fixture| {
        // As in clusters where node addresses are load balancer addresses.
        fixture.balanced("web", &["192.0.2.1", "192.0.2.2"], plain("10.96.0.1"));
        fixture.endpoints("web", &[3]);
        fixture.sync();
        fixture.topology.outside.serve("0.0.0.0:9");
        assert_eq!(
            fixture.topology.node.call("192.0.2.2:9"),
            Ok(ip("192.0.2.1")),
            "the address belongs to another host"
        );
        assert_eq!(fixture.topology.outside.call("192.0.2.1:80"), Ok(ip("10.244.1.1")));
    });
}

#[test]
fn proxy_restart_loses_no_connection() {
    for mode in [Mode::Nftables, Mode::Iptables] {
        let mut fixture = Fixture::new(mode);
        fixture.service("web", plain("10.96.0.1"));
        fixture.endpoints("web", &[2, 3]);
        fixture.sync();
        let outside = &fixture.topology.outside.path.clone();
        let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
        let lost = std::thread::scope(|scope| {
            let work = || {
                let mut lost = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    lost.extend(Namespace::call_within(outside, "192.0.2.1:30080").err());
                    made.fetch_add(1, Ordering::Relaxed);
                }
                lost
            };
            let traffic: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
            for _ in 0..5 {
                let so_far = made.load(Ordering::Relaxed);
                fixture.restart();
                while made.load(Ordering::Relaxed) < so_far + 20 {
                    std::thread::yield_now();
                }
            }
            stop.store(true, Ordering::Relaxed);
            traffic.into_iter().flat_map(|one| one.join().unwrap()).collect::<Vec<_>>()
        });
        let made = made.into_inner();
        println!("{mode:?}: {made} connections over five restarts, {} lost", lost.len());
        assert!(lost.is_empty() && made >= 100, "{mode:?}: {made} made, lost {lost:?}");
    }
}

#[test]
fn iptables_mode_serves_node_ports_on_every_address_and_loopback() {
    let mut fixture = Fixture::new(Mode::Iptables);
    fixture.service("web", plain("10.96.0.1"));
    fixture.endpoints("web", &[3]);
    fixture.rules.changes();
    fixture.everything(Settings { every_address: true, localhost: true, ..settings() });
    assert_eq!(fixture.topology.node.call("127.0.0.1:30080"), Ok(ip("10.244.1.1")));
    assert_eq!(fixture.topology.node.call("10.244.1.1:30080"), Ok(ip("10.244.1.1")));
    fixture.everything(Settings { every_address: true, localhost: false, ..settings() });
    assert!(fixture.topology.node.call("127.0.0.1:30080").is_err());
}

#[test]
fn loopback_interface_is_unreachable_from_outside() {
    let fixture = Fixture::new(Mode::Iptables);
    fixture.everything(Settings { every_address: true, localhost: true, ..settings() });
    let Topology { node, outside } = &fixture.topology;
    // The pod network has a separate guard, which other CNIs do not have.
    node.run("nft flush chain ip knarr-pods guard");
    let stranger = Stranger::new(outside, "via 192.0.2.1");
    assert!(!stranger.reaches(node));
    node.serve("127.0.0.1:9");
    assert_eq!(node.call("127.0.0.1:9"), Ok(ip("127.0.0.1")), "the node itself can connect");
    node.run("iptables -F KUBE-FIREWALL");
    assert!(stranger.reaches(node), "without the rule the connection succeeds");
    // After cleanup the loopback interface stays unreachable.
    node.enter(clean_up).unwrap();
    assert!(!stranger.reaches(node));
}

#[test]
fn unknown_service_port_is_rejected() {
    let mut fixture = Fixture::new(Mode::Nftables);
    fixture.service("web", plain("10.96.0.1"));
    fixture.endpoints("web", &[3]);
    fixture.sync();
    let check_rejected = |fixture: &Fixture, to: &str| {
        let callers = [("a pod", &fixture.pods[0]), ("the node", &fixture.topology.node)];
        for (name, from) in callers {
            let error = from.call(to).unwrap_err();
            assert!(error.contains("refused"), "from {name} to {to}: {error}");
        }
    };
    check_rejected(&fixture, "10.96.0.1:81");
    assert!(fixture.pods[0].call("10.96.0.1:80").is_ok() && fixture.pods[0].call("10.96.0.1:90").is_ok());
    // Rejected only as long as the service has a port.
    fixture.service("web", value!({"clusterIP": "10.96.0.1", "ports": [{"name": "i", "port": 90}]}));
    fixture.sync();
    check_rejected(&fixture, "10.96.0.1:80");
    fixture.service("web", value!({"clusterIP": "10.96.0.2", "ports": [{"name": "i", "port": 90}]}));
    fixture.sync();
    check_rejected(&fixture, "10.96.0.2:80");
    assert!(!fixture.topology.node.run("nft list set ip kube-proxy cluster-ips").contains("10.96.0.1"));
}

#[test]
fn unused_chains_are_bounded_and_do_not_outlive_a_restart() {
    let mut fixture = Fixture::new(Mode::Nftables);
    let picking = |fixture: &Fixture| -> Vec<String> {
        let table = fixture.topology.node.run("nft list table ip kube-proxy");
        let chains = table.lines().filter_map(|line| line.trim().strip_prefix("chain ")?.strip_suffix(" {"));
        let picks = chains.filter(|name| name.starts_with("address-") || name.starts_with("port-"));
        picks.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
    };
    fixture.service("web", plain("10.96.0.1"));
    for endpoints in [&[2][..], &[2, 3], &[2, 3, 4]] {
        fixture.endpoints("web", endpoints);
        fixture.sync();
    }
    assert_eq!(picking(&fixture).len(), 6, "one chain for each number of endpoints");
    // Users choose the timeout, so that every value could leave a chain behind.
    let mut most = 0;
    for seconds in 1..200 {
        let affinity = value!({"sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}});
        fixture.service("web", with(plain("10.96.0.1"), affinity));
        fixture.sync();
        most = most.max(picking(&fixture).len());
    }
    assert!((60..70).contains(&most), "{most}");
    assert!(fixture.topology.node.call("10.96.0.1:80").is_ok());
    fixture.restart();
    assert_eq!(picking(&fixture), ["address-3-foreign-199s", "port-3-always-199s"]);
    assert!(fixture.topology.node.call("10.96.0.1:80").is_ok());
}

/// Returns every endpoint that answered some calls, by the last part of its address.
fn served_by(from: &Namespace, to: &str) -> BTreeSet<u8> {
    let one = |_| match from.call(to) {
        Ok(IpAddr::V4(ip)) => ip.octets()[3],
        other => panic!("{to}: {other:?}"),
    };
    (0..24).map(one).collect()
}

/// Description, service fields, endpoints, called address, and expected endpoints.
type Choice = (&'static str, Value, Vec<Value>, &'static str, Vec<u8>);

fn with(mut object: Value, more: Value) -> Value {
    if let Value::Object(more) = more {
        for (key, value) in more {
            object.as_object_mut().unwrap().insert(key, value);
        }
    }
    object
}

fn choices() -> Vec<Choice> {
    let endpoint =
        |last: u8, more: Value| with(value!({"addresses": [(format!("10.244.1.{last}"))], "nodeName": "a"}), more);
    let zone = |name: &str| value!({"hints": {"forZones": [{"name": name}]}});
    let node = |name: &str| value!({"hints": {"forNodes": [{"name": name}]}});
    let is = |ready: bool, serving: bool, terminating: bool| value!({"conditions": {"ready": ready, "serving": serving, "terminating": terminating}});
    let elsewhere = || value!({"nodeName": "b"});
    let (own, of_node) = ("10.96.0.1:90", "192.0.2.1:30090");
    let local = |side: &str| Value::Object([(side, "Local")].into_iter().collect());
    let near = || vec![endpoint(2, value!({})), endpoint(3, elsewhere())];
    let going = |other: Value| vec![endpoint(2, is(false, true, true)), endpoint(3, other)];
    vec![
        ("hints for this zone", value!({}), vec![endpoint(2, zone("z1")), endpoint(3, zone("z2"))], own, vec![2]),
        (
            "no endpoint has a hint for this zone",
            value!({}),
            vec![endpoint(2, zone("z2")), endpoint(3, zone("z2"))],
            own,
            vec![2, 3],
        ),
        (
            "node hints, as set by trafficDistribution",
            value!({"trafficDistribution": "PreferSameNode"}),
            vec![endpoint(3, node("a")), endpoint(4, node("b"))],
            own,
            vec![3],
        ),
        ("internalTrafficPolicy Local", local("internalTrafficPolicy"), near(), own, vec![2]),
        (
            "node ports are not subject to internalTrafficPolicy",
            local("internalTrafficPolicy"),
            near(),
            of_node,
            vec![2, 3],
        ),
        ("a terminating endpoint beside ready ones", value!({}), going(is(true, true, false)), own, vec![3]),
        ("a terminating, serving endpoint and no ready one", value!({}), going(is(false, false, true)), own, vec![2]),
        (
            "the last local endpoint is terminating",
            local("externalTrafficPolicy"),
            going(elsewhere()),
            of_node,
            vec![2],
        ),
    ]
}

#[test]
fn endpoints_are_selected_by_hints_policies_and_conditions() {
    in_each_mode(|mut fixture| {
        fixture.rules.set_node(kube_proxy::Node { name: "a".into(), zone: "z1".into() });
        for (what, fields, endpoints, to, expect) in choices() {
            // At this port an endpoint returns its own address.
            let spec = value!({"clusterIP": "10.96.0.1", "ports": [{"name": "i", "port": 90, "nodePort": 30090}]});
            fixture.service("web", with(spec, fields));
            fixture.slice("web", endpoints);
            fixture.sync();
            assert_eq!(served_by(&fixture.topology.outside, to), expect.into_iter().collect(), "{what}");
        }
    });
}

#[test]
fn external_addresses_reach_the_service() {
    in_each_mode(|mut fixture| {
        let spec =
            value!({"clusterIP": "10.96.0.1", "externalIPs": ["192.0.2.210"], "ports": [{"name": "p", "port": 80}]});
        fixture.balanced("web", &["192.0.2.200", "192.0.2.1"], spec);
        fixture.endpoints("web", &[3]);
        fixture.sync();
        if fixture.mode == Mode::Userspace {
            fixture.topology.node.run(
                "ip address add 192.0.2.200/32 dev up0
                 ip address add 192.0.2.210/32 dev up0",
            );
        }
        for to in ["192.0.2.210:80", "192.0.2.200:80", "192.0.2.1:80"] {
            for from in [&fixture.topology.outside, &fixture.topology.node, &fixture.pods[0]] {
                assert_eq!(from.call(to), Ok(ip("10.244.1.1")), "to {to}");
            }
        }
    });
}

#[test]
fn session_affinity_lasts_for_its_timeout() {
    in_each_mode(|mut fixture| {
        let spec = value!({"clusterIP": "10.96.0.1", "ports": [{"name": "i", "port": 90}],
            "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 2}}});
        fixture.service("web", spec);
        fixture.endpoints("web", &[2, 3, 4]);
        fixture.sync();
        // Each call extends the affinity; after the timeout another endpoint may be selected. The timeout needs real
        // time.
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let first = fixture.topology.node.call("10.96.0.1:90").unwrap();
        for _ in 0..10 {
            assert_eq!(fixture.topology.node.call("10.96.0.1:90").unwrap(), first);
        }
        loop {
            assert!(std::time::Instant::now() < deadline, "the affinity does not expire");
            std::thread::sleep(Duration::from_millis(2500));
            if fixture.topology.node.call("10.96.0.1:90").unwrap() != first {
                break;
            }
        }
    });
}
