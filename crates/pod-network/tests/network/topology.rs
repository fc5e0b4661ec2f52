//! Network namespaces for tests, and connections between them.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use netlink::namespace::within;
use rustix::thread::gettid;

const TIMEOUT: Duration = Duration::from_secs(2);

/// A network namespace that exists as long as this value.
pub(crate) struct Namespace {
    pub path: PathBuf,
    /// Stops the thread that keeps the namespace when dropped.
    _keep: mpsc::Sender<()>,
}

impl Namespace {
    pub(crate) fn new() -> Self {
        test_requirements::root();
        let (sender, receiver) = mpsc::channel();
        let (keep, until) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let path = format!("/proc/{}/task/{}/ns/net", std::process::id(), gettid().as_raw_nonzero());
            sender.send(PathBuf::from(path)).unwrap();
            // Waits until the sender is dropped.
            let _ = until.recv();
        });
        Self { path: receiver.recv().unwrap(), _keep: keep }
    }

    pub(crate) fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        within(&self.path, work).unwrap()
    }

    /// Runs commands, one per line.
    pub(crate) fn run(&self, commands: &str) -> String {
        self.enter(|| {
            let mut text = String::new();
            for line in commands.lines().map(str::trim).filter(|line| !line.is_empty()) {
                let mut tokens = line.split_whitespace();
                let output = Command::new(tokens.next().unwrap()).args(tokens).output().unwrap();
                assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
                text.push_str(&String::from_utf8_lossy(&output.stdout));
            }
            text
        })
    }

    /// Listens and returns to each client its source address.
    pub(crate) fn serve(&self, address: &str) {
        self.serve_with(address, |stream| stream.peer_addr().unwrap().ip());
    }

    /// Listens and returns to each client the address that it reached.
    pub(crate) fn serve_itself(&self, address: &str) {
        self.serve_with(address, |stream| stream.local_addr().unwrap().ip());
    }

    fn serve_with(&self, address: &str, what: fn(&TcpStream) -> IpAddr) {
        let address: SocketAddr = address.parse().unwrap();
        let listener = self.enter(|| TcpListener::bind(address).unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let text = what(&stream).to_canonical().to_string();
                // The client disconnected early; there is nothing left to do.
                let _ = stream.write_all(text.as_bytes());
            }
        });
    }

    /// Connects and returns the address that the server sent.
    pub(crate) fn call(&self, address: &str) -> Result<IpAddr, String> {
        Self::call_within(&self.path, address)
    }

    /// Connects from the namespace at a path.
    pub(crate) fn call_within(path: &Path, address: &str) -> Result<IpAddr, String> {
        let address: SocketAddr = address.parse().unwrap();
        let call = || {
            let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(|error| error.to_string())?;
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).map_err(|error| error.to_string())?;
            response.parse().map_err(|_| format!("{response:?}"))
        };
        within(path, call).unwrap()
    }
}

/// A node and an external host without routes to pods.
pub(crate) struct Topology {
    pub node: Namespace,
    pub outside: Namespace,
}

impl Topology {
    pub(crate) fn new() -> Self {
        let (node, outside) = (Namespace::new(), Namespace::new());
        join(&node, "up0", &outside, "up1");
        node.run(
            "ip link set lo up
             ip link set up0 mtu 1400
             ip link set up0 up
             ip addr add 192.0.2.1/24 dev up0
             ip addr add 2001:db8::1/64 dev up0 nodad
             ip route add default via 192.0.2.2",
        );
        outside.run(
            "ip link set lo up
             ip link set up1 mtu 1400
             ip link set up1 up
             ip addr add 192.0.2.2/24 dev up1
             ip addr add 2001:db8::2/64 dev up1 nodad",
        );
        node.run("ip route add default via 2001:db8::2");
        Self { node, outside }
    }
}

/// Connects two namespaces by a veth pair; both ends are down.
pub(crate) fn join(one: &Namespace, one_end: &str, other: &Namespace, other_end: &str) {
    let to = thread_of(&other.path);
    one.run(&format!("ip link add {one_end} type veth peer name {other_end} netns {to}"));
}

/// Returns the thread ID of a namespace, as `ip` expects it: any task's ID works.
fn thread_of(path: &Path) -> String {
    path.components().nth(4).unwrap().as_os_str().to_str().unwrap().to_owned()
}

/// A neighbour that routes 127.0.0.1 like any other address and sends packets there.
pub(crate) struct Stranger<'a>(&'a Namespace);

impl<'a> Stranger<'a> {
    /// Creates one that uses this route.
    pub(crate) fn new(space: &'a Namespace, way: &str) -> Self {
        space.run(&format!(
            "ip route del table local local 127.0.0.0/8 dev lo
             ip route del table local local 127.0.0.1 dev lo
             ip route add 127.0.0.1/32 {way}"
        ));
        Self(space)
    }

    /// Whether its packets arrive at the loopback interface of another namespace.
    pub(crate) fn reaches(&self, other: &Namespace) -> bool {
        let at: SocketAddr = ([127, 0, 0, 1], 9).into();
        let there = other.enter(|| UdpSocket::bind(at).unwrap());
        there.set_read_timeout(Some(TIMEOUT)).unwrap();
        let here = self.0.enter(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        here.send_to(b"?", at).unwrap();
        there.recv_from(&mut [0; 1]).is_ok()
    }
}
