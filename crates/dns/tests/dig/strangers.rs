//! The server answers pods, nodes and its own machine, and nobody else.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use dns::clients::Clients;
use dns::forward::Forwarder;
use dns::serve::{Knowledge, Listeners};

use super::zone;

const PATIENCE: Duration = Duration::from_secs(10);
/// `kubernetes.default.svc.cluster.local A`, which the zone has, and `example.org A`, which is for another resolver.
const CLUSTER: &[u8] =
    b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x0akubernetes\x07default\x03svc\x07cluster\x05local\0\0\x01\0\x01";
const WORLD: &[u8] = b"\0\x02\x01\0\0\x01\0\0\0\0\0\0\x07example\x03org\0\0\x01\0\x01";

/// Runs in a network namespace whose loopback interface has the addresses of a node, a pod, a neighbour and another node.
fn in_namespace(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            for line in ["link set lo up", "addr add 192.0.2.1/32 dev lo", "addr add 192.0.2.2/32 dev lo"]
                .into_iter()
                .chain(["addr add 192.0.2.99/32 dev lo", "addr add 10.244.0.9/32 dev lo"])
            {
                assert!(
                    std::process::Command::new("ip").args(line.split(' ')).status().unwrap().success(),
                    "ip {line}"
                );
            }
            work();
        });
        thread.join().unwrap();
    });
}

fn ask(from: &str, server: SocketAddr, question: &[u8]) -> UdpSocket {
    let socket = UdpSocket::bind((from.parse::<IpAddr>().unwrap(), 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
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

/// Whether a question over a connection is answered; the server closes the connection if not.
fn is_answered_over_tcp(from: &str, server: SocketAddr) -> bool {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
    connect(&socket, &server).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = u16::try_from(CLUSTER.len()).unwrap().to_be_bytes();
    let sent = stream.write_all(&[&length, CLUSTER].concat());
    sent.is_ok() && matches!(stream.read(&mut [0; 512]), Ok(1..))
}

#[test]
fn the_resolver_answers_only_pods_nodes_and_its_own_machine() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: network namespaces need root");
        return;
    }
    in_namespace(|| {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listeners = executor.block_on(Listeners::bind(&["192.0.2.1:0".parse().unwrap()])).unwrap();
        let addresses = listeners.addresses().unwrap();
        let server = addresses[0];
        let clients = Clients::of_cluster(net::Cidr::parse_list("10.244.0.0/16").unwrap(), &addresses);
        clients.set_node("two", vec!["192.0.2.2".parse().unwrap()]);
        let knowledge = Arc::new(Knowledge::new(zone(), Forwarder::new(Vec::new()), clients));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = std::thread::spawn(move || {
            executor.block_on(async {
                tokio::select! {
                    () = listeners.serve(knowledge) => {}
                    _ = stopped => {}
                }
            });
        });
        for question in [CLUSTER, WORLD] {
            let stranger = ask("192.0.2.99", server, question);
            for from in ["10.244.0.9", "192.0.2.1", "192.0.2.2"] {
                assert!(is_answered(&ask(from, server, question)), "{from}");
            }
            // Questions are taken in their order: an answer would be here.
            stranger.set_nonblocking(true).unwrap();
            assert!(!is_answered(&stranger));
        }
        assert!(is_answered_over_tcp("10.244.0.9", server));
        assert!(!is_answered_over_tcp("192.0.2.99", server));
        drop(stop);
        serving.join().unwrap();
    });
}
