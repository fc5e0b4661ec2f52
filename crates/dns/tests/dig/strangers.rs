//! Tests that the DNS server answers only pods, nodes and its own host.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use dns::clients::Clients;
use dns::forward::Forwarder;
use dns::serve::{Knowledge, Listeners};

use super::topology::{Namespace, Topology};
use super::zone;

const TIMEOUT: Duration = Duration::from_secs(10);
/// `CLUSTER`: `kubernetes.default.svc.cluster.local A`, which is in the zone. The other: `example.org A`, which is
/// forwarded.
const CLUSTER: &[u8] =
    b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x0akubernetes\x07default\x03svc\x07cluster\x05local\0\0\x01\0\x01";
const EXTERNAL_QUERY: &[u8] = b"\0\x02\x01\0\0\x01\0\0\0\0\0\0\x07example\x03org\0\0\x01\0\x01";

fn send_query(space: &Namespace, from: &str, server: SocketAddr, question: &[u8]) -> UdpSocket {
    let socket = space.enter(|| UdpSocket::bind((from.parse::<IpAddr>().unwrap(), 0)).unwrap());
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.send_to(question, server).unwrap();
    socket
}

fn is_answered(socket: &UdpSocket) -> bool {
    match socket.recv_from(&mut [0; 512]) {
        Ok(_) => true,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
            false
        }
    }
}

/// Whether a TCP query is answered; otherwise the server closes the connection.
fn is_answered_over_tcp(space: &Namespace, from: &str, server: SocketAddr) -> bool {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let mut stream = space.enter(|| {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
        connect(&socket, &server).unwrap();
        TcpStream::from(socket)
    });
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let length = u16::try_from(CLUSTER.len()).unwrap().to_be_bytes();
    let sent = stream.write_all(&[&length, CLUSTER].concat());
    sent.is_ok() && matches!(stream.read(&mut [0; 512]), Ok(1..))
}

/// Serves in a namespace until the sender is dropped.
fn serve(node: &Namespace) -> (SocketAddr, tokio::sync::oneshot::Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (sender, receiver) = std::sync::mpsc::channel();
    let path = node.path.clone();
    let work = move || {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        executor.block_on(async {
            let listeners = Listeners::bind(&["192.0.2.1:0".parse().unwrap()]).await.unwrap();
            let addresses = listeners.addresses().unwrap();
            let clients = Clients::of_cluster(netlink::Cidr::parse_list("10.244.0.0/16").unwrap(), &addresses);
            clients.set_node("two", vec!["192.0.2.2".parse().unwrap()]);
            sender.send(addresses[0]).unwrap();
            tokio::select! {
                () = listeners.serve(Arc::new(Knowledge::new(zone(), Forwarder::new(Vec::new()), clients))) => {}
                _ = stopped => {}
            }
        });
    };
    let thread = std::thread::spawn(move || netlink::namespace::within(&path, work).unwrap());
    (receiver.recv().unwrap(), stop, thread)
}

#[test]
fn resolver_answers_only_pods_nodes_and_its_own_host() {
    let Topology { node, outside } = &Topology::new();
    node.run("ip addr add 198.51.100.7/32 dev lo\nip route add 10.244.0.9/32 via 192.0.2.2");
    outside.run("ip addr add 192.0.2.99/24 dev up1\nip addr add 10.244.0.9/32 dev lo");
    let (server, stop, thread) = serve(node);
    for question in [CLUSTER, EXTERNAL_QUERY] {
        let stranger = send_query(outside, "192.0.2.99", server, question);
        for (space, from) in
            [(outside, "10.244.0.9"), (outside, "192.0.2.2"), (node, "192.0.2.1"), (node, "198.51.100.7")]
        {
            assert!(is_answered(&send_query(space, from, server, question)), "{from}");
        }
        // Queries are handled in order: an answer would have arrived by now.
        stranger.set_nonblocking(true).unwrap();
        assert!(!is_answered(&stranger));
    }
    assert!(is_answered_over_tcp(outside, "10.244.0.9", server));
    assert!(!is_answered_over_tcp(outside, "192.0.2.99", server));
    drop(stop);
    thread.join().unwrap();
}
