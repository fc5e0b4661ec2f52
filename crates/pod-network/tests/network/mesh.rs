//! Tests of pods on several nodes: two on one segment, a third behind a router.

use netlink::Cidr;
use pod_network::RoutedNetwork;
use pod_network::mesh::{self, Peer};
use pod_network::routed::Config;

use crate::topology::{Namespace, join};

struct Node {
    space: Namespace,
    peer: Peer,
    pod: Namespace,
    _state: tempfile::TempDir,
}

fn node(number: u8, address: &str) -> Node {
    let space = Namespace::new();
    space.run("ip link set lo up");
    let pod_cidrs = Cidr::parse_list(&format!("10.244.{number}.0/24,fd00:{number}::/64")).unwrap();
    let state = tempfile::tempdir().unwrap();
    let network = RoutedNetwork::new(Config {
        pod_cidrs: pod_cidrs.clone(),
        cluster_cidrs: Cidr::parse_list("10.244.0.0/16,fd00::/16").unwrap(),
        overhead: mesh::OVERHEAD,
        ..Config::new(state.path())
    });
    let pod = Namespace::new();
    space.enter(|| network.add(&pod.path, "pod", "eth0", &[])).unwrap();
    for listen in ["0.0.0.0:80", "[::]:81"] {
        pod.serve(listen);
    }
    let peer = Peer { addresses: vec![address.parse().unwrap()], pod_cidrs };
    Node { space, peer, pod, _state: state }
}

fn know_each_other(nodes: &[&Node]) {
    for (at, node) in nodes.iter().enumerate() {
        let peers: Vec<Peer> =
            nodes.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, node)| node.peer.clone()).collect();
        node.space.enter(|| {
            let own = netlink::link::Links::open().unwrap().addresses().unwrap();
            mesh::apply(&mesh::plan(&own, &peers), &node.peer.pod_cidrs, None).unwrap();
        });
    }
}

#[test]
fn every_pod_reaches_every_pod_with_its_own_address() {
    let (router, switch) = (Namespace::new(), Namespace::new());
    router.run("sysctl -qw net.ipv4.ip_forward=1");
    switch.run("ip link add br0 type bridge\nip link set br0 up");
    let nodes = [node(1, "192.0.2.1"), node(2, "192.0.2.2"), node(3, "198.51.100.3")];
    for (name, space, address) in [
        ("p1", &nodes[0].space, "192.0.2.1/24"),
        ("p2", &nodes[1].space, "192.0.2.2/24"),
        ("p3", &router, "192.0.2.254/24"),
    ] {
        join(&switch, name, space, "up0");
        switch.run(&format!("ip link set {name} master br0\nip link set {name} up"));
        space.run(&format!("ip link set up0 up\nip addr add {address} dev up0"));
    }
    join(&router, "r1", &nodes[2].space, "up0");
    router.run("ip link set r1 up\nip addr add 198.51.100.254/24 dev r1");
    nodes[2]
        .space
        .run("ip link set up0 up\nip addr add 198.51.100.3/24 dev up0\nip route add default via 198.51.100.254");
    for near in &nodes[..2] {
        near.space.run("ip route add default via 192.0.2.254");
    }
    know_each_other(&nodes.each_ref());
    for (from, to) in [(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)] {
        let four = nodes[from - 1].pod.call(&format!("10.244.{to}.2:80"));
        assert_eq!(four.map(|ip| ip.to_string()), Ok(format!("10.244.{from}.2")), "{from} to {to}");
        let six = nodes[from - 1].pod.call(&format!("[fd00:{to}::2]:81"));
        assert_eq!(six.map(|ip| ip.to_string()), Ok(format!("fd00:{from}::2")), "{from} to {to}");
    }
    // A pod's packets fit into the tunnel, and the tunnel's into the uplink.
    let mtu = |space: &Namespace, link: &str| -> u32 {
        let output = space.run(&format!("ip -o link show {link}"));
        output.split(" mtu ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap()
    };
    assert_eq!(mtu(&nodes[0].pod, "eth0"), 1500 - mesh::OVERHEAD);
    for out in [1500, 1400] {
        nodes[0].space.run(&format!("ip link set up0 mtu {out}"));
        know_each_other(&nodes.each_ref());
        assert_eq!(mtu(&nodes[0].space, mesh::TUNNEL), out - mesh::OVERHEAD);
    }
    // From a node to a pod on another node.
    assert!(nodes[0].space.call("10.244.3.2:80").is_ok());
    assert!(nodes[2].space.call("10.244.1.2:80").is_ok());
    // One node is removed: no route to it remains, and no tunnel without peers.
    know_each_other(&[&nodes[0], &nodes[1]]);
    let routes = nodes[0].space.run("ip route show proto 107");
    assert!(routes.contains("10.244.2.0/24 via 192.0.2.2") && !routes.contains("10.244.3.0/24"), "{routes}");
}
