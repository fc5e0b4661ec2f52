//! Tests of source address binding: packets that a pod sends from another address are dropped.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use pod_network::RoutedNetwork;
use pod_network::routed::Config;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket, sockopt};

use crate::topology::{Namespace, Stranger, Topology};

const TIMEOUT: Duration = Duration::from_secs(5);
const TUNNEL: u16 = 8472;

/// A node with pods whose addresses end in 2, 3 and so on.
struct Node {
    topology: Topology,
    pods: Vec<Namespace>,
    _state: tempfile::TempDir,
}

impl Node {
    fn new(blocks: &str, pods: usize) -> Self {
        let (topology, state) = (Topology::new(), tempfile::tempdir().unwrap());
        let network = RoutedNetwork::new(config(state.path(), blocks));
        let pods: Vec<Namespace> = (0..pods).map(|_| Namespace::new()).collect();
        for (number, pod) in pods.iter().enumerate() {
            topology.node.enter(|| network.add(&pod.path, &number.to_string(), "eth0", &[])).unwrap();
        }
        Self { topology, pods, _state: state }
    }
}

fn config(state: &Path, blocks: &str) -> Config {
    let list = |text: &str| netlink::Cidr::parse_list(text).unwrap();
    Config { pod_cidrs: list(blocks), cluster_cidrs: list("10.244.0.0/16,fd00::/16"), ..Config::new(state) }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn listen(space: &Namespace, port: u16) -> UdpSocket {
    let socket = space.enter(|| UdpSocket::bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)).unwrap());
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

fn send(space: &Namespace, from: &str, to: &str) {
    let to: SocketAddr = to.parse().unwrap();
    space.enter(|| UdpSocket::bind((ip(from), 0)).unwrap().send_to(b"?", to).unwrap());
}

/// Returns the source of the next datagram.
fn sender(socket: &UdpSocket) -> Result<IpAddr, String> {
    let received = socket.recv_from(&mut [0; 1]).map_err(|error| error.to_string());
    received.map(|(_, from)| from.ip().to_canonical())
}

/// Sends from several addresses; only the last one is legitimate and its datagram must be the only one that arrives.
fn only_the_last_arrives(space: &Namespace, from: &[&str], at: &UdpSocket, to: &str) {
    for from in from {
        send(space, from, to);
    }
    assert_eq!(sender(at), Ok(ip(from.last().unwrap())), "to {to}");
}

#[test]
fn pod_cannot_spoof_another_pods_address_even_without_a_policy() {
    let node = Node::new("10.244.1.0/24,fd00:1::/64", 3);
    let [liar, victim, target] = &node.pods[..] else { unreachable!() };
    // Root in a pod can add any address to its own link.
    liar.run(
        "ip addr add 10.244.1.3/32 dev eth0
         ip addr add 10.244.1.99/32 dev eth0
         ip addr add 192.0.2.2/32 dev eth0
         ip addr add fd00:1::3/128 dev eth0 nodad
         ip addr add fd00:1::99/128 dev eth0 nodad",
    );
    let four = ["10.244.1.3", "10.244.1.99", "192.0.2.2", "10.244.1.2"];
    let six = ["fd00:1::3", "fd00:1::99", "fd00:1::2"];
    for (at, own) in
        [(target, ["10.244.1.4:7", "[fd00:1::4]:7"]), (&node.topology.node, ["192.0.2.1:7", "[2001:db8::1]:7"])]
    {
        let socket = listen(at, 7);
        only_the_last_arrives(liar, &four, &socket, own[0]);
        only_the_last_arrives(liar, &six, &socket, own[1]);
    }
    // Answering ARP for the address on its own link does not divert packets to its owner.
    victim.serve_itself("[::]:8");
    for (to, expect) in [("10.244.1.3:8", "10.244.1.3"), ("[fd00:1::3]:8", "fd00:1::3")] {
        assert_eq!(node.topology.node.call(to), Ok(ip(expect)));
        assert_eq!(target.call(to), Ok(ip(expect)));
    }
    let guards = node.topology.node.run("nft list chain ip knarr-pods guard");
    assert!(guards.contains("@sources") && guards.contains("drop"), "{guards}");
}

#[test]
fn neighbour_of_the_node_cannot_spoof_a_pods_address() {
    let node = Node::new("10.244.1.0/24,fd00:1::/64", 1);
    let outside = &node.topology.outside;
    outside.run(
        "ip addr add 10.244.1.2/32 dev lo
         ip addr add fd00:1::2/128 dev lo nodad",
    );
    let socket = listen(&node.topology.node, 7);
    only_the_last_arrives(outside, &["10.244.1.2", "192.0.2.2"], &socket, "192.0.2.1:7");
    only_the_last_arrives(outside, &["fd00:1::2", "2001:db8::2"], &socket, "[2001:db8::1]:7");
}

#[test]
fn pod_without_ipv6_address_cannot_send_ipv6() {
    let node = Node::new("10.244.1.0/24", 1);
    let pod = &node.pods[0];
    let links = node.topology.node.run("ip -o link show type veth");
    let link = links.lines().find_map(|line| line.split([' ', '@']).find(|word| word.starts_with("kn"))).unwrap();
    node.topology
        .node
        .run(&format!("ip addr add fd00:7::1/128 dev {link} nodad\nip route add fd00:7::2/128 dev {link}"));
    pod.run(
        "ip addr add fd00:7::2/128 dev eth0 nodad
         ip route add fd00:7::1/128 dev eth0
         ip route add default via fd00:7::1 dev eth0",
    );
    let socket = listen(&node.topology.node, 7);
    send(pod, "fd00:7::2", "[2001:db8::1]:7");
    send(pod, "10.244.1.2", "192.0.2.1:7");
    assert_eq!(sender(&socket), Ok(ip("10.244.1.2")));
}

#[test]
fn cve_2020_10749_a_pod_cannot_become_the_nodes_router_by_an_advertisement() {
    // Without IPv6 pods the node does not forward IPv6, and a host that does not forward accepts router advertisements.
    let node = Node::new("10.244.1.0/24", 1);
    let pod = &node.pods[0];
    let socket = listen(&node.topology.node, 7);
    pod.enter(|| {
        let raw = socket_for_advertisements();
        let index: u32 = std::fs::read_to_string("/proc/thread-self/net/dev_mcast")
            .unwrap()
            .lines()
            .find(|line| line.contains("eth0"))
            .and_then(|line| line.split_whitespace().next()?.parse().ok())
            .unwrap();
        let all_nodes = SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, index);
        // Type 134: a router advertisement with a lifetime of half an hour and no options. The kernel fills in the
        // checksum.
        let mut advertisement = [0; 16];
        advertisement[0] = 134;
        advertisement[4] = 64;
        advertisement[6..8].copy_from_slice(&1800_u16.to_be_bytes());
        // The kernel adds the multicast route of a new link asynchronously.
        let start = Instant::now();
        while let Err(error) = sendto(&raw, &advertisement, SendFlags::empty(), &all_nodes) {
            assert!(error == Errno::NETUNREACH && start.elapsed() < TIMEOUT, "{error}");
            std::thread::yield_now();
        }
    });
    // A packet sent after the advertisement arrives after it.
    send(pod, "10.244.1.2", "192.0.2.1:7");
    assert_eq!(sender(&socket), Ok(ip("10.244.1.2")));
    let routes = node.topology.node.run("ip -6 route show default");
    assert!(!routes.contains("proto ra"), "{routes}");
}

fn socket_for_advertisements() -> std::os::fd::OwnedFd {
    let raw = socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::ICMPV6)).unwrap();
    // Receivers require hop limit 255, which proves that the sender is on-link.
    sockopt::set_ipv6_multicast_hops(&raw, 255).unwrap();
    raw
}

#[test]
fn pod_cannot_send_into_the_tunnel_between_nodes() {
    let node = Node::new("10.244.1.0/24,fd00:1::/64", 2);
    let [pod, other] = &node.pods[..] else { unreachable!() };
    let Topology { node: here, outside } = &node.topology;
    outside.run("ip addr add 10.244.9.9/32 dev lo");
    for (at, to) in [(here, "192.0.2.1"), (here, "10.244.1.1"), (here, "[2001:db8::1]"), (outside, "192.0.2.2")] {
        let (tunnel, beside) = (listen(at, TUNNEL), listen(at, TUNNEL + 1));
        let from = if to.starts_with('[') { "fd00:1::2" } else { "10.244.1.2" };
        send(pod, from, &format!("{to}:{TUNNEL}"));
        send(pod, from, &format!("{to}:{}", TUNNEL + 1));
        assert!(sender(&beside).is_ok(), "another port of {to}");
        tunnel.set_nonblocking(true).unwrap();
        assert!(sender(&tunnel).is_err(), "the tunnel's port of {to}");
    }
    // A pod of another node, whose packets arrive by a plain route.
    let tunnel = listen(here, TUNNEL);
    only_the_last_arrives(outside, &["10.244.9.9", "192.0.2.2"], &tunnel, &format!("192.0.2.1:{TUNNEL}"));
    // Pods may use the port among themselves.
    let own = listen(other, TUNNEL);
    only_the_last_arrives(pod, &["10.244.1.2"], &own, &format!("10.244.1.3:{TUNNEL}"));
}

/// Services on 127.0.0.1 trust their clients. Host ports, and kube-proxy's node ports on localhost, need
/// `route_localnet`, which accepts packets to 127.0.0.1 from every link.
#[test]
fn cve_2020_8558_neighbours_and_pods_cannot_reach_127_0_0_1_of_the_node() {
    let node = Node::new("10.244.1.0/24", 1);
    let Topology { node: here, outside } = &node.topology;
    here.run("sysctl -qw net.ipv4.conf.all.route_localnet=1");
    let strangers = [
        Stranger::new(outside, "via 192.0.2.1 dev up1 onlink"),
        Stranger::new(&node.pods[0], "via 10.244.1.1 dev eth0 onlink"),
    ];
    for stranger in &strangers {
        assert!(!stranger.reaches(here));
    }
    here.run("nft flush chain ip knarr-pods guard");
    for stranger in &strangers {
        assert!(stranger.reaches(here), "without the rule the connection succeeds");
    }
}
