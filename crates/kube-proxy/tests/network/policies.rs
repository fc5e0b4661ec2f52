//! Tests of NetworkPolicies in network namespaces.

use apimachinery::{Key, Value, value};
use kube_proxy::config::Mode;
use kube_proxy::policy::sync::Enforcer;
use kube_proxy::policy::{Cluster, Pod, Policy, decide};

use crate::fixture::{Fixture, ip};
use crate::topology::Namespace;

/// Pods of the fixture: namespace, name, and team label of the namespace.
const PODS: [(&str, &str, &str); 3] = [("x", "client", "red"), ("x", "server", "red"), ("y", "other", "blue")];

/// Creates a cluster with these policies in the namespace of the first two pods.
fn cluster(policies: &[Value]) -> Cluster {
    let mut cluster = Cluster::default();
    let labels = value!({"kubernetes.io/metadata.name": "kube-system"});
    cluster.namespaces.insert(Key::cluster("kube-system"), labels.as_object().unwrap().clone());
    cluster.serve_dns(&[ip(DNS_IP)]);
    for (number, (namespace, name, team)) in PODS.into_iter().enumerate() {
        let labels = value!({"team": team});
        cluster.namespaces.insert(Key::cluster(namespace), labels.as_object().unwrap().clone());
        let last = number + 2;
        let pod = value!({"metadata": {"labels": {"app": name}},
            "spec": {"nodeName": "a", "containers": [{"ports": [{"name": "web", "containerPort": 8080}]}]},
            "status": {"podIPs": [{"ip": (format!("10.244.1.{last}"))}, {"ip": (format!("fd00:1::{last}"))}]}});
        cluster.pods.insert(Key::new(namespace, name), Pod::read(&pod).unwrap());
    }
    for (number, spec) in policies.iter().enumerate() {
        let mut policy = value!({});
        policy.as_object_mut().unwrap().insert("spec", spec.clone());
        cluster.policies.insert(Key::new("x", format!("p{number}")), Policy::read(&policy).unwrap());
    }
    cluster
}

pub(crate) fn enforce(node: &Namespace, enforcer: &mut Enforcer, policies: &[Value]) {
    let decision = decide(&cluster(policies), "a");
    node.enter(|| {
        let executor = tokio::runtime::Builder::new_current_thread().build().unwrap();
        executor.block_on(enforcer.enforce(&decision)).unwrap();
    });
}

/// Makes all calls concurrently, because dropped packets take a timeout: client, destination, and expected success.
fn check(fixture: &Fixture, what: &str, calls: &[(&str, &str, bool)]) {
    let made: Vec<_> = std::thread::scope(|scope| {
        let call = |from: &str, to: &str| {
            let pod = PODS.iter().position(|(_, name, _)| *name == from);
            let path = pod.map_or(&fixture.topology.node.path, |at| &fixture.pods[at].path);
            Namespace::call_within(path, to)
        };
        let running: Vec<_> = calls.iter().map(|(from, to, _)| scope.spawn(move || call(from, to))).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for ((from, to, expect), got) in calls.iter().zip(made) {
        assert_eq!(got.is_ok(), *expect, "{what}: {from} to {to}: {got:?}");
        assert!(got.is_ok() || got.as_ref().unwrap_err().contains("timed out"), "{what}: dropped, not {got:?}");
    }
}

/// Returns a policy for one pod with the rules of one direction.
fn policy(app: &str, side: &str, rules: Value) -> Value {
    let kind = if side == "ingress" { "Ingress" } else { "Egress" };
    let mut policy = value!({"podSelector": {"matchLabels": {"app": app}}, "policyTypes": [kind]});
    policy.as_object_mut().unwrap().insert(side, rules);
    policy
}

/// The address of the DNS service, without and with port.
const DNS_IP: &str = "10.96.0.10";
const DNS: &str = "10.96.0.10:53";
const CLIENT: &str = "10.244.1.2:8080";
const SERVER: &str = "10.244.1.3:8080";
const SERVER_OTHER_PORT: &str = "10.244.1.3:8090";
const SERVER_SIX: &str = "[fd00:1::3]:8080";
const OTHER: &str = "10.244.1.4:8080";
const OTHER_SIX: &str = "[fd00:1::4]:8080";
const OUTSIDE: &str = "192.0.2.2:8080";

/// Description, policies, and calls with expected success.
pub(crate) type Row = (&'static str, Vec<Value>, Vec<(&'static str, &'static str, bool)>);

pub(crate) fn rows() -> Vec<Row> {
    [ingress_rows(), egress_rows()].concat()
}

fn ingress_rows() -> Vec<Row> {
    let to_server =
        |client: bool, other: bool, port: &'static str| vec![("client", port, client), ("other", port, other)];
    vec![
        (
            "only the node can connect, with either address family",
            vec![policy("server", "ingress", value!([]))],
            vec![
                ("client", SERVER, false),
                ("client", SERVER_SIX, false),
                ("node", SERVER, true),
                ("server", CLIENT, true),
                ("client", OTHER, true),
            ],
        ),
        (
            "a pod's own namespace",
            vec![policy("server", "ingress", value!([{"from": [{"podSelector": {}}]}]))],
            to_server(true, false, SERVER),
        ),
        (
            "pods of another namespace, of either family",
            vec![policy(
                "server",
                "ingress",
                value!([{"from": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}]}]),
            )],
            [to_server(false, true, SERVER), to_server(false, true, SERVER_SIX)].concat(),
        ),
        (
            "a port by name",
            vec![policy("server", "ingress", value!([{"ports": [{"port": "web"}]}]))],
            vec![("client", SERVER, true), ("client", SERVER_OTHER_PORT, false)],
        ),
        (
            "a range of ports",
            vec![policy("server", "ingress", value!([{"ports": [{"port": 8081, "endPort": 8090}]}]))],
            vec![("client", SERVER, false), ("client", SERVER_OTHER_PORT, true)],
        ),
        (
            "the union of two policies",
            vec![
                policy("server", "ingress", value!([{"from": [{"podSelector": {}}], "ports": [{"port": 8080}]}])),
                policy("server", "ingress", value!([{"from": [{"namespaceSelector": {}}], "ports": [{"port": 8090}]}])),
            ],
            [to_server(true, false, SERVER), to_server(true, true, SERVER_OTHER_PORT)].concat(),
        ),
    ]
}

fn egress_rows() -> Vec<Row> {
    vec![
        (
            "egress is denied, and replies to incoming connections pass",
            vec![policy("client", "egress", value!([]))],
            vec![("client", SERVER, false), ("client", OUTSIDE, false), ("server", CLIENT, true)],
        ),
        (
            "an IP block with an exception",
            vec![policy(
                "client",
                "egress",
                value!([{"to": [{"ipBlock": {"cidr": "10.244.1.0/24", "except": ["10.244.1.4/32"]}}]}]),
            )],
            vec![
                ("client", SERVER, true),
                ("client", OTHER, false),
                ("client", SERVER_SIX, false),
                ("client", OUTSIDE, false),
            ],
        ),
        (
            "an IPv6 block",
            vec![policy("client", "egress", value!([{"to": [{"ipBlock": {"cidr": "fd00:1::4/127"}}]}]))],
            vec![("client", OTHER_SIX, true), ("client", SERVER_SIX, false), ("client", OTHER, false)],
        ),
        (
            "egress to a named port of the peer",
            vec![policy("client", "egress", value!([{"to": [{"podSelector": {}}], "ports": [{"port": "web"}]}]))],
            vec![("client", SERVER, true), ("client", SERVER_OTHER_PORT, false), ("client", OTHER, false)],
        ),
        ("no policy", Vec::new(), vec![("client", SERVER, true), ("other", SERVER_SIX, true)]),
    ]
}

#[test]
fn policies_pass_allowed_traffic_only() {
    let fixture = Fixture::new(Mode::Nftables);
    let node = &fixture.topology.node;
    fixture.topology.outside.serve("0.0.0.0:8080");
    let mut enforcer = Enforcer::default();
    // The rows run sequentially, each as a change of the previous; some also over the rules of an earlier run.
    for (what, policies, calls) in rows() {
        enforce(node, &mut enforcer, &policies);
        check(&fixture, what, &calls);
    }
    for (what, policies, calls) in rows().into_iter().rev().step_by(3) {
        enforce(node, &mut Enforcer::default(), &policies);
        check(&fixture, what, &calls);
    }
}

/// Uses a service whose endpoint is the node itself, like the built-in DNS, and a policy that denies all egress.
#[test]
fn default_deny_egress_denies_dns_until_a_policy_allows_it() {
    let mut fixture = Fixture::new(Mode::Nftables);
    fixture.service("dns", value!({"clusterIP": DNS_IP, "ports": [{"name": "p", "port": 53}]}));
    fixture.slice("dns", vec![value!({"addresses": ["192.0.2.1"], "nodeName": "a"})]);
    fixture.sync();
    let node = &fixture.topology.node;
    node.serve("192.0.2.1:8080");
    let dns_pods = value!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}});
    let deny = || policy("client", "egress", value!([]));
    let allow = |rules: Value| vec![deny(), policy("client", "egress", rules)];
    let rows: Vec<(&str, Vec<Value>, bool)> = vec![
        ("no policy", Vec::new(), true),
        ("all egress denied", vec![deny()], false),
        (
            "DNS allowed by the usual rule",
            allow(value!([{"to": [(dns_pods.clone())], "ports": [{"port": 53, "protocol": "TCP"}]}])),
            true,
        ),
        ("DNS allowed by port name", allow(value!([{"to": [(dns_pods)], "ports": [{"port": "dns-tcp"}]}])), true),
        ("port 53 of all peers", allow(value!([{"ports": [{"port": 53}]}])), true),
        (
            "an IP block that contains the DNS address",
            allow(value!([{"to": [{"ipBlock": {"cidr": "10.96.0.0/16"}}]}])),
            true,
        ),
        ("another port", allow(value!([{"ports": [{"port": 54}]}])), false),
        ("other pods", allow(value!([{"to": [{"podSelector": {}}]}])), false),
    ];
    let mut enforcer = Enforcer::default();
    for (what, policies, expect) in rows {
        enforce(node, &mut enforcer, &policies);
        check(&fixture, what, &[("client", DNS, expect), ("other", DNS, true), ("node", DNS, true)]);
    }
}

#[test]
fn rules_of_an_earlier_run_do_not_outlive_it() {
    let fixture = Fixture::new(Mode::Nftables);
    let node = &fixture.topology.node;
    let closed = [policy("server", "ingress", value!([])), policy("client", "egress", value!([]))];
    enforce(node, &mut Enforcer::default(), &closed);
    check(&fixture, "closed", &[("client", SERVER, false)]);
    assert_eq!(node.run("nft list table ip knarr-policies").matches("chain allow-").count(), 2);
    // The policies were deleted while no enforcer was running.
    enforce(node, &mut Enforcer::default(), &[]);
    check(&fixture, "open", &[("client", SERVER, true)]);
    assert_eq!(node.run("nft list table ip knarr-policies").matches("chain allow-").count(), 0);
    node.enter(kube_proxy::policy::sync::clean_up).unwrap();
    // Without any restriction ever, no table exists.
    enforce(node, &mut Enforcer::default(), &[]);
    assert!(!node.run("nft list tables").contains("knarr-policies"));
}
