//! Test fixture: a node with serving pods, and a proxy of any mode.

use std::net::IpAddr;
use std::sync::mpsc;

use apimachinery::{Key, Value, value};
use kube_proxy::config::Mode;
use kube_proxy::dataplane::Engine;
use kube_proxy::settings::Settings;
use kube_proxy::{Changes, Node, Rules};
use netlink::Cidr;
use pod_network::RoutedNetwork;
use pod_network::routed::Config;
use tokio::sync::mpsc as tasks;

use crate::topology::{Namespace, Topology};

const PODS: &str = "10.244.1.0/24,fd00:1::/64";
/// `CALLER`: port where a pod returns the client's address. `ITSELF`: port where it returns its own.
const CALLER: u16 = 8080;
const ITSELF: u16 = 8090;

/// A node with three serving pods and a proxy.
pub(crate) struct Fixture {
    pub topology: Topology,
    pub pods: Vec<Namespace>,
    pub rules: Rules,
    pub mode: Mode,
    proxy: Proxy,
    _state: tempfile::TempDir,
}

/// A proxy engine on a thread in the node's network namespace.
struct Proxy(tasks::UnboundedSender<(Work, mpsc::Sender<Result<(), String>>)>);

enum Work {
    Everything(Settings, Changes),
    Change(Changes),
}

impl Fixture {
    pub(crate) fn new(mode: Mode) -> Self {
        let topology = Topology::new();
        let state = tempfile::tempdir().unwrap();
        let network =
            RoutedNetwork::new(Config { pod_cidrs: Cidr::parse_list(PODS).unwrap(), ..Config::new(state.path()) });
        let pods: Vec<Namespace> = (0..3).map(|_| Namespace::new()).collect();
        for (number, pod) in pods.iter().enumerate() {
            topology.node.enter(|| network.add(&pod.path, &number.to_string(), "eth0", &[])).unwrap();
            pod.serve(&format!("[::]:{CALLER}"));
            pod.serve_itself(&format!("[::]:{ITSELF}"));
        }
        // The outside host routes service addresses to the node, like a router in front of the node.
        topology.outside.run(
            "ip route add 10.96.0.0/16 via 192.0.2.1
             ip route add fd00:96::/64 via 2001:db8::1
             ip route add 192.0.2.128/25 via 192.0.2.1",
        );
        let rules = Rules::new(Node { name: "a".into(), zone: String::new() }, false);
        let proxy = Proxy::start(&topology.node, mode);
        let fixture = Self { topology, pods, rules, mode, proxy, _state: state };
        fixture.everything(settings());
        fixture
    }

    /// Replaces the proxy by a new one that finds the rules of the first.
    pub(crate) fn restart(&mut self) {
        self.proxy = Proxy::start(&self.topology.node, self.mode);
        self.rules.changes();
        self.everything(settings());
    }

    pub(crate) fn everything(&self, settings: Settings) {
        let everything = self.rules.everything();
        self.proxy.run(Work::Everything(settings, everything.clone()));
        self.delete_stale_flows(&everything);
    }

    pub(crate) fn service(&mut self, name: &str, spec: Value) {
        self.balanced(name, &[], spec);
    }

    /// Creates a service with load balancer addresses.
    pub(crate) fn balanced(&mut self, name: &str, balancer: &[&str], spec: Value) {
        let ingress: Vec<Value> = balancer.iter().map(|ip| value!({"ip": (*ip)})).collect();
        let mut object = value!({"status": {"loadBalancer": {"ingress": ingress}}});
        object.as_object_mut().unwrap().insert("spec", spec);
        self.rules.set_service(&Key::new("x", name), Some(&object));
    }

    /// Sets endpoints by the last part of their addresses; those from 100 are on other nodes.
    pub(crate) fn endpoints(&mut self, service: &str, last: &[u8]) {
        for (family, prefix) in [("four", "10.244.1."), ("six", "fd00:1::")] {
            let one = |last: &u8| {
                let node = if *last < 100 { "a" } else { "b" };
                value!({"addresses": [(format!("{prefix}{last}"))], "nodeName": node})
            };
            self.set_slice(service, family, last.iter().map(one).collect());
        }
    }

    /// Sets the IPv4 endpoints of a service.
    pub(crate) fn slice(&mut self, service: &str, endpoints: Vec<Value>) {
        self.set_slice(service, "four", endpoints);
    }

    fn set_slice(&mut self, service: &str, family: &str, endpoints: Vec<Value>) {
        let slice = value!({"metadata": {"namespace": "x", "labels": {"kubernetes.io/service-name": service}},
            "endpoints": endpoints, "ports": [{"name": "p", "port": (i64::from(CALLER)), "protocol": "TCP"},
                {"name": "i", "port": (i64::from(ITSELF)), "protocol": "TCP"},
                {"name": "u", "port": 5353, "protocol": "UDP"}]});
        self.rules.set_slice(&Key::new("x", format!("{service}-{family}").as_str()), Some(&slice));
    }

    pub(crate) fn sync(&mut self) {
        let changes = self.rules.changes();
        self.proxy.run(Work::Change(changes.clone()));
        self.delete_stale_flows(&changes);
    }

    fn delete_stale_flows(&self, changes: &Changes) {
        if self.mode != Mode::Userspace {
            self.topology.node.enter(|| kube_proxy::run::delete_stale_flows(changes, &settings()));
        }
    }

    /// Returns the client address that a pod sees: in userspace mode the node's instead of the client's.
    pub(crate) fn seen<'a>(&self, expect: &'a str) -> &'a str {
        match (self.mode, expect.contains(':')) {
            (Mode::Userspace, false) => "10.244.1.1",
            (Mode::Userspace, true) => "fd00:1::1",
            (Mode::Nftables | Mode::Iptables, _) => expect,
        }
    }
}

impl Proxy {
    fn start(node: &Namespace, mode: Mode) -> Self {
        let (sender, mut receiver) = tasks::unbounded_channel::<(Work, mpsc::Sender<Result<(), String>>)>();
        let path = node.path.clone();
        let work = move || {
            let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            executor.block_on(async {
                let mut engine = Engine::new(mode);
                while let Some((work, reply)) = receiver.recv().await {
                    let done = match work {
                        Work::Everything(settings, changes) => engine.everything(settings, changes).await,
                        Work::Change(changes) => engine.change(changes).await,
                    };
                    let _ = reply.send(done.map_err(|error| format!("{error:?}")));
                }
            });
        };
        std::thread::spawn(move || netlink::namespace::within(&path, work).unwrap());
        Self(sender)
    }

    fn run(&self, work: Work) {
        let (reply, replied) = mpsc::channel();
        self.0.send((work, reply)).ok().unwrap();
        replied.recv().unwrap().unwrap();
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        pods: Cidr::parse_list(PODS).unwrap(),
        node_addresses: vec![ip("192.0.2.1"), ip("2001:db8::1")],
        mark: 0x4000,
        ..Settings::default()
    }
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns a service with both test ports.
pub(crate) fn plain(cluster_ip: &str) -> Value {
    value!({"clusterIP": cluster_ip,
        "ports": [{"name": "p", "port": 80, "nodePort": 30080}, {"name": "i", "port": 90}]})
}
