//! Tests of the built-in pod network.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use netlink::Protocol;
use pod_network::routed::Config;
use pod_network::{NetworkError, PortMapping, RoutedNetwork};

use crate::topology::{Namespace, Stranger, Topology};

const BLOCKS: &str = "10.244.1.0/24,fd00:1::/64";

fn config(state: &Path) -> Config {
    Config { pod_cidrs: netlink::Cidr::parse_list(BLOCKS).unwrap(), ..Config::new(state) }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn port(protocol: Protocol, host_port: u16, container_port: u16, host_ip: Option<&str>) -> PortMapping {
    PortMapping { protocol, host_port, container_port, host_ip: host_ip.map(ip) }
}

/// Returns everything that the network could leave behind on a node.
fn traces(node: &Namespace) -> String {
    let links = node.run("ip -o link show type veth");
    let pods: Vec<&str> = links.lines().filter(|line| line.contains(": kn")).collect();
    let routes = node.run("ip route show proto 107") + &node.run("ip -6 route show proto 107");
    format!("{routes}{}{}", pods.join("\n"), node.run("nft list tables"))
}

#[test]
fn pods_reach_each_other_the_node_and_outside_and_leave_no_traces() {
    let topology = Topology::new();
    let directory = tempfile::tempdir().unwrap();
    let network = RoutedNetwork::new(config(directory.path()));
    let (one, two) = (Namespace::new(), Namespace::new());
    let add = |pod: &Namespace, id: &str, ports: &[PortMapping]| {
        topology.node.enter(|| network.add(&pod.path, id, "eth0", ports)).unwrap().ips
    };
    assert_eq!(add(&one, "one", &[]), [ip("10.244.1.2"), ip("fd00:1::2")]);
    let ports = [
        port(Protocol::Tcp, 8080, 80, None),
        port(Protocol::Tcp, 8081, 80, Some("192.0.2.1")),
        port(Protocol::Tcp, 8082, 80, Some("192.0.2.99")),
    ];
    assert_eq!(add(&two, "two", &ports), [ip("10.244.1.3"), ip("fd00:1::3")]);
    assert!(one.run("ip link show eth0").contains("mtu 1400"), "the MTU of the uplink");
    for address in ["0.0.0.0:80", "[::]:81"] {
        two.serve(address);
        topology.outside.serve(address);
        topology.node.serve(address);
    }
    let check = |from: &Namespace, to: &str, expect: &str| assert_eq!(from.call(to), Ok(ip(expect)), "to {to}");
    // Between pods, and with the node, source addresses are kept.
    check(&one, "10.244.1.3:80", "10.244.1.2");
    check(&one, "[fd00:1::3]:81", "fd00:1::2");
    check(&topology.node, "10.244.1.3:80", "10.244.1.1");
    check(&topology.node, "[fd00:1::3]:81", "fd00:1::1");
    check(&one, "192.0.2.1:80", "10.244.1.2");
    two.serve_itself("0.0.0.0:82");
    check(&one, "10.244.1.3:82", "10.244.1.3");
    one.serve("127.0.0.1:1");
    check(&one, "127.0.0.1:1", "127.0.0.1");
    // External hosts see the node's address.
    check(&one, "192.0.2.2:80", "192.0.2.1");
    check(&one, "[2001:db8::2]:81", "2001:db8::1");
    // Host ports lead to the pod from everywhere, including the pod itself.
    check(&topology.outside, "192.0.2.1:8080", "192.0.2.2");
    check(&topology.outside, "192.0.2.1:8081", "192.0.2.2");
    check(&topology.node, "192.0.2.1:8080", "192.0.2.1");
    check(&one, "192.0.2.1:8080", "10.244.1.2");
    check(&two, "192.0.2.1:8080", "10.244.1.1");
    assert!(one.call("10.244.1.200:80").is_err(), "no pod has the address");
    assert!(topology.outside.call("192.0.2.1:8082").is_err(), "a port of another address");
    topology.node.enter(|| network.inspect(&two.path, "two", "eth0")).unwrap();
    topology.node.enter(|| network.remove("two", "eth0")).unwrap();
    assert!(topology.outside.call("192.0.2.1:8080").is_err());
    assert_ne!(connections(&topology.node), 0);
    topology.node.enter(|| network.clean_up()).unwrap();
    assert_eq!(traces(&topology.node), "");
    assert_eq!(connections(&topology.node), 0);
}

/// Returns the number of conntrack entries of pods.
fn connections(node: &Namespace) -> usize {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let collect_flow = |flow: &netlink::conntrack::Flow| {
        let pods: netlink::Cidr = "10.244.1.0/24".parse().unwrap();
        if [flow.from, flow.to, flow.reply_source].iter().any(|(ip, _)| pods.contains(*ip)) {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        // Only counts; deletes nothing.
        false
    };
    node.enter(|| netlink::conntrack::delete_flows(Protocol::Tcp, collect_flow)).unwrap();
    count.into_inner()
}

/// Connects from a given local address, like `curl --interface`, and returns the response.
fn call_from(space: &Namespace, from: &str, to: &str) -> Result<String, String> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
    let address = |text: &str| -> SocketAddr { text.parse().unwrap() };
    space.enter(|| {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        for timeout in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
            sockopt::set_socket_timeout(&socket, timeout, Some(Duration::from_secs(2))).unwrap();
        }
        bind(&socket, &address(from)).unwrap();
        connect(&socket, &address(to)).map_err(|error| error.to_string())?;
        let mut response = String::new();
        TcpStream::from(socket).read_to_string(&mut response).map_err(|error| error.to_string())?;
        Ok(response)
    })
}

/// Answers every datagram with `word`.
fn serve_datagrams(space: &Namespace, at: &str, word: &'static str) {
    let socket = space.enter(|| UdpSocket::bind(at).unwrap());
    std::thread::spawn(move || {
        let mut buffer = [0; 16];
        while let Ok((_, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(word.as_bytes(), from);
        }
    });
}

#[test]
fn host_ports_are_distinct_by_address_and_protocol() {
    const PORT: u16 = 54323;
    let topology = Topology::new();
    let (node, outside) = (&topology.node, &topology.outside);
    let directory = tempfile::tempdir().unwrap();
    let network = RoutedNetwork::new(config(directory.path()));
    let add = |id: &str, protocol, host_ip: &str, container_port| {
        let pod = Namespace::new();
        let mapping = port(protocol, PORT, container_port, Some(host_ip));
        node.enter(|| network.add(&pod.path, id, "eth0", &[mapping])).unwrap();
        pod
    };
    node.enter(|| network.start()).unwrap();
    // Conntrack remembers the flow without a reply.
    let client = outside.enter(|| UdpSocket::bind("192.0.2.2:4444").unwrap());
    client.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let query = || -> Option<String> {
        client.send_to(b"?", ("192.0.2.1", PORT)).unwrap();
        let mut buffer = [0; 16];
        let (length, _) = client.recv_from(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    };
    assert_eq!(query(), None);
    let (one, two) = (add("one", Protocol::Tcp, "127.0.0.1", 80), add("two", Protocol::Tcp, "192.0.2.1", 80));
    let three = add("three", Protocol::Udp, "192.0.2.1", 53);
    for pod in [&one, &two] {
        pod.serve_itself("0.0.0.0:80");
    }
    serve_datagrams(&three, "0.0.0.0:53", "three");
    let (local, own) = (format!("127.0.0.1:{PORT}"), format!("192.0.2.1:{PORT}"));
    assert_eq!(node.call(&local), Ok(ip("10.244.1.2")), "by the loopback interface");
    assert_eq!(call_from(node, "192.0.2.1:0", &local).as_deref(), Ok("10.244.1.2"), "from another address to it");
    for from in [node, outside] {
        assert_eq!(from.call(&own), Ok(ip("10.244.1.3")));
    }
    assert_eq!(query().as_deref(), Some("three"));
    // The next pod with the port receives packets immediately.
    node.enter(|| network.remove("three", "eth0")).unwrap();
    let four = add("four", Protocol::Udp, "192.0.2.1", 53);
    serve_datagrams(&four, "0.0.0.0:53", "four");
    assert_eq!(query().as_deref(), Some("four"));
    // The pod's link accepts packets from loopback, but not from other sources.
    let stranger = Stranger::new(&one, "via 10.244.1.1 dev eth0 onlink");
    assert!(!stranger.reaches(node));
    node.run("nft flush chain ip knarr-pods guard");
    assert!(stranger.reaches(node), "without the rule the connection succeeds");
    node.enter(|| network.clean_up()).unwrap();
    assert_eq!(traces(node), "");
}

#[test]
fn addresses_survive_a_restart_and_are_released() {
    let topology = Topology::new();
    let directory = tempfile::tempdir().unwrap();
    let pods: Vec<Namespace> = (0..3).map(|_| Namespace::new()).collect();
    let network = RoutedNetwork::new(config(directory.path()));
    topology.node.enter(|| {
        for (pod, id) in pods.iter().zip(["a", "b"]) {
            network.add(&pod.path, id, "eth0", &[]).unwrap();
        }
    });
    // A new instance knows the pods of the first.
    let network = RoutedNetwork::new(config(directory.path()));
    topology.node.enter(|| {
        network.inspect(&pods[0].path, "a", "eth0").unwrap();
        assert_eq!(network.add(&pods[2].path, "c", "eth0", &[]).unwrap().ips[0], ip("10.244.1.4"));
        network.retain(|id| id == "c").unwrap();
        let result = network.inspect(&pods[0].path, "a", "eth0");
        assert!(matches!(result, Err(NetworkError::Damaged(_))), "{result:?}");
        // Removal of a detached or unknown sandbox succeeds.
        network.remove("a", "eth0").unwrap();
        network.remove("never", "eth0").unwrap();
    });
    let links = topology.node.run("ip -o link show type veth");
    assert_eq!(links.lines().filter(|line| line.contains(": kn")).count(), 1, "{links}");
}

#[test]
fn bandwidth_limits_are_enforced() {
    const BYTES: usize = 1_000_000;
    let topology = Topology::new();
    let directory = tempfile::tempdir().unwrap();
    let network = RoutedNetwork::new(config(directory.path()));
    let (slow, other) = (Namespace::new(), Namespace::new());
    topology.node.enter(|| {
        network.add(&slow.path, "slow", "eth0", &[]).unwrap();
        network.add(&other.path, "other", "eth0", &[]).unwrap();
        // One second of traffic in each direction, plus the burst.
        let bandwidth = netlink::bandwidth::Bandwidth { ingress: Some(8_000_000), egress: Some(8_000_000) };
        network.limit("slow", "eth0", bandwidth).unwrap();
    });
    // The transfer can take longer for many reasons, but never less.
    let took = |from: &Namespace, to: &Namespace, address: &str| {
        let listener = to.enter(|| std::net::TcpListener::bind(address).unwrap());
        let start = std::time::Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| std::io::copy(&mut listener.accept().unwrap().0, &mut std::io::sink()).unwrap());
            let mut stream = from.enter(|| TcpStream::connect(address).unwrap());
            std::io::Write::write_all(&mut stream, &vec![0; BYTES]).unwrap();
        });
        start.elapsed()
    };
    for (from, to, address) in [(&slow, &other, "10.244.1.3:1000"), (&other, &slow, "10.244.1.2:1000")] {
        let took = took(from, to, address);
        assert!(took.as_millis() > 700, "{took:?} to {address}");
    }
    topology.node.enter(|| network.remove("slow", "eth0")).unwrap();
    topology.node.enter(|| network.clean_up()).unwrap();
    assert_eq!(traces(&topology.node), "");
    assert!(!topology.node.run("ip -o link").contains(": ki"), "no packets are dropped any more");
}

#[test]
fn failed_attach_leaves_no_traces() {
    let topology = Topology::new();
    let directory = tempfile::tempdir().unwrap();
    let network = RoutedNetwork::new(config(directory.path()));
    let pod = Namespace::new();
    pod.run("ip link add eth0 type bridge");
    let failed = topology.node.enter(|| network.add(&pod.path, "a", "eth0", &[]));
    assert!(matches!(failed, Err(NetworkError::Kernel(_))), "{failed:?}");
    let links = topology.node.run("ip -o link show type veth");
    assert!(!links.contains(": kn"), "{links}");
    pod.run("ip link del eth0");
    let lease = topology.node.enter(|| network.add(&pod.path, "a", "eth0", &[])).unwrap();
    topology.node.run("nft delete table ip knarr-pods");
    // The rules were changed externally: attaching the next pod repairs them.
    let other = Namespace::new();
    topology.node.enter(|| network.add(&other.path, "b", "eth0", &[])).unwrap();
    pod.serve(&format!("{}:80", lease.ips[0]));
    assert_eq!(other.call(&format!("{}:80", lease.ips[0])).map(|ip| ip.to_string()), Ok("10.244.1.4".to_owned()));
    assert!(topology.node.run("nft list tables").contains("table ip knarr-pods"));
}

#[test]
fn pod_is_attached_within_milliseconds() {
    let topology = Topology::new();
    let directory = tempfile::tempdir().unwrap();
    let network = RoutedNetwork::new(config(directory.path()));
    let pods: Vec<Namespace> = (0..20).map(|_| Namespace::new()).collect();
    topology.node.enter(|| network.start()).unwrap();
    let start = std::time::Instant::now();
    topology.node.enter(|| {
        for (number, pod) in pods.iter().enumerate() {
            network.add(&pod.path, &number.to_string(), "eth0", &[]).unwrap();
        }
    });
    println!("{:?} a pod", start.elapsed() / 20);
    let first = &pods[0];
    let last = "10.244.1.21:80";
    pods[19].serve(last);
    assert_eq!(first.call(last), Ok(ip("10.244.1.2")));
}
