//! What services do, in each mode.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use machinery::{Key, value};
use proxy::config::Mode;
use proxy::engine::{Settings, clean_up};

use crate::fixture::{Fixture, ip, plain, settings};
use crate::world::{Namespace, is_root};

const MODES: [Mode; 3] = [Mode::Nftables, Mode::Iptables, Mode::Userspace];

fn in_each_mode(check: impl Fn(Fixture)) {
    if !is_root() {
        return;
    }
    for mode in MODES {
        println!("{mode:?}");
        check(Fixture::new(mode));
    }
}

#[test]
fn services_lead_to_endpoints_from_everywhere() {
    in_each_mode(|mut fixture| {
        fixture.service("web", plain("10.96.0.1"));
        fixture.service(
            "six",
            value!({"clusterIP": "fd00:96::1", "ports": [{"name": "p", "port": 80, "nodePort": 30086}]}),
        );
        fixture.sync();
        let refused = fixture.pods[0].call("10.96.0.1:80").unwrap_err();
        assert!(refused.contains("refused"), "nobody is there: {refused}");
        fixture.endpoints("web", &[3]);
        fixture.endpoints("six", &[3]);
        fixture.sync();
        let Fixture { world, pods, .. } = &fixture;
        let check = |from: &Namespace, to: &str, expect: &str| {
            assert_eq!(from.call(to), Ok(ip(fixture.seen(expect))), "to {to}");
        };
        // Pods are who they are; others come back this way; an endpoint may come to itself.
        check(&pods[0], "10.96.0.1:80", "10.244.1.2");
        check(&pods[1], "10.96.0.1:80", "10.244.1.1");
        check(&pods[0], "[fd00:96::1]:80", "fd00:1::2");
        check(&pods[1], "[fd00:96::1]:80", "fd00:1::1");
        for outside in [&world.node, &world.outside] {
            check(outside, "10.96.0.1:80", "10.244.1.1");
            check(outside, "192.0.2.1:30080", "10.244.1.1");
            check(outside, "[fd00:96::1]:80", "fd00:1::1");
            check(outside, "[2001:db8::1]:30086", "fd00:1::1");
        }
        check(&pods[0], "192.0.2.1:30080", "10.244.1.1");
        fixture.endpoints("web", &[]);
        fixture.sync();
        assert!(fixture.world.outside.call("192.0.2.1:30080").unwrap_err().contains("refused"));
        fixture.world.node.enter(clean_up).unwrap();
        assert_eq!(traces(&fixture.world.node), "");
    });
}

/// What a proxy could leave behind.
fn traces(node: &Namespace) -> String {
    let lines = |text: String| {
        text.lines().filter(|line| line.contains("KUBE-") || line.contains("kube-")).collect::<Vec<_>>().join("\n")
    };
    ["nft list tables", "iptables-save", "ip6tables-save", "ip -o address"].map(|look| lines(node.run(look))).concat()
}

#[test]
fn connections_spread_over_endpoints_and_stick_where_asked() {
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
        let served_by = |fixture: &Fixture, address: &str| fixture.world.node.call(address).unwrap();
        let plain: BTreeSet<IpAddr> = (0..40).map(|_| served_by(&fixture, "10.96.0.1:90")).collect();
        assert_eq!(plain.len(), 3, "{plain:?}");
        let first = served_by(&fixture, "10.96.0.2:90");
        for _ in 0..15 {
            assert_eq!(served_by(&fixture, "10.96.0.2:90"), first);
        }
        // The endpoint goes: its clients go elsewhere, and stick there.
        let IpAddr::V4(gone) = first else { panic!("{first}") };
        let rest: Vec<u8> = [2, 3, 4].into_iter().filter(|last| *last != gone.octets()[3]).collect();
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
fn traffic_that_stays_keeps_its_source_and_guards_let_only_some_in() {
    in_each_mode(|mut fixture| {
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
        let seen = ip(fixture.seen("192.0.2.2"));
        assert_eq!(fixture.world.outside.call("192.0.2.1:30080"), Ok(seen), "as who it is");
        assert!(fixture.world.outside.call("192.0.2.200:80").is_err(), "not one of those who may");
        fixture.rules.set_service(&Key::new("x", "guarded"), Some(&guarded("192.0.2.0/25")));
        fixture.sync();
        assert_eq!(fixture.world.outside.call("192.0.2.200:80"), Ok(ip("10.244.1.1")));
        // Nobody here, somebody elsewhere: dropped from outside.
        fixture.endpoints("local", &[200]);
        fixture.sync();
        let dropped = fixture.world.outside.call("192.0.2.1:30080").unwrap_err();
        assert!(dropped.contains("timed out") || fixture.mode == Mode::Userspace, "{dropped}");
    });
}

#[test]
fn datagrams_find_the_new_endpoint() {
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
        let ask = || {
            client.send_to(b"?", "10.96.0.10:53").unwrap();
            let mut buffer = [0; 16];
            let (length, _) = client.recv_from(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        assert_eq!(ask(), "three");
        fixture.endpoints("dns", &[4]);
        fixture.sync();
        assert_eq!(ask(), "four");
    });
}

#[test]
fn a_proxy_that_starts_again_loses_no_connection() {
    if !is_root() {
        return;
    }
    for mode in [Mode::Nftables, Mode::Iptables] {
        let mut fixture = Fixture::new(mode);
        fixture.service("web", plain("10.96.0.1"));
        fixture.endpoints("web", &[2, 3]);
        fixture.sync();
        let outside = &fixture.world.outside.path.clone();
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
fn in_iptables_mode_every_address_has_the_ports_of_services_and_the_loopback_interface_too() {
    if !is_root() {
        return;
    }
    let mut fixture = Fixture::new(Mode::Iptables);
    fixture.service("web", plain("10.96.0.1"));
    fixture.endpoints("web", &[3]);
    fixture.rules.changes();
    fixture.everything(Settings { every_address: true, localhost: true, ..settings() });
    assert_eq!(fixture.world.node.call("127.0.0.1:30080"), Ok(ip("10.244.1.1")));
    assert_eq!(fixture.world.node.call("10.244.1.1:30080"), Ok(ip("10.244.1.1")));
    fixture.everything(Settings { every_address: true, localhost: false, ..settings() });
    assert!(fixture.world.node.call("127.0.0.1:30080").is_err());
}
