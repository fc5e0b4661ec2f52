//! Text of iptables chains: the rules of a service port, with upstream's structure and names.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use netlink::nft::Family;
use netlink::{Cidr, Protocol};
use sha2::{Digest, Sha256};

use crate::endpoints::EndpointAddr;
use crate::service_state::{Backend, Forwarding, Frontend, FrontendKind, Masquerade, Scope};
use crate::settings::Settings;

/// Rules by chain name.
pub(super) type Chains = BTreeMap<String, Vec<String>>;
/// Frontends of one service port.
pub(super) type PortFrontends = BTreeMap<Frontend, Backend>;

/// Chains of the table `nat` that exist independently of services.
pub(super) const NAT_BASE: &[&str] =
    &["KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ", "KUBE-MARK-FOREIGN"];
/// Chains of the table `filter` that exist independently of services.
pub(super) const FILTER_BASE: &[&str] =
    &["KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-FORWARD", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL", FIREWALL];
/// Chain of the table `filter` that protects the loopback interface; upstream's kubelet has the same.
pub(super) const FIREWALL: &str = "KUBE-FIREWALL";
/// Prefixes of service chains.
const PREFIXES: &[&str] = &["KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"];

/// A jump from a built-in chain into a kube-proxy chain.
pub(super) struct Jump {
    pub table: &'static str,
    pub from: &'static str,
    /// Match options; ends with a space if not empty.
    pub matching: &'static str,
    pub to: &'static str,
}

const NEW: &str = "-m conntrack --ctstate NEW ";

/// All jumps. Each is inserted at the top, so the last of a chain ends up first.
pub(super) const JUMPS: &[Jump] = &[
    Jump { table: "nat", from: "PREROUTING", matching: "", to: "KUBE-SERVICES" },
    Jump { table: "nat", from: "OUTPUT", matching: "", to: "KUBE-SERVICES" },
    Jump { table: "nat", from: "POSTROUTING", matching: "", to: "KUBE-POSTROUTING" },
    Jump { table: "filter", from: "INPUT", matching: "", to: "KUBE-NODEPORTS" },
    Jump { table: "filter", from: "INPUT", matching: "", to: FIREWALL },
    Jump { table: "filter", from: "INPUT", matching: NEW, to: "KUBE-EXTERNAL-SERVICES" },
    Jump { table: "filter", from: "INPUT", matching: NEW, to: "KUBE-PROXY-FIREWALL" },
    Jump { table: "filter", from: "FORWARD", matching: NEW, to: "KUBE-EXTERNAL-SERVICES" },
    Jump { table: "filter", from: "FORWARD", matching: NEW, to: "KUBE-SERVICES" },
    Jump { table: "filter", from: "FORWARD", matching: "", to: "KUBE-FORWARD" },
    Jump { table: "filter", from: "FORWARD", matching: NEW, to: "KUBE-PROXY-FIREWALL" },
    Jump { table: "filter", from: "OUTPUT", matching: NEW, to: "KUBE-SERVICES" },
    Jump { table: "filter", from: "OUTPUT", matching: NEW, to: "KUBE-PROXY-FIREWALL" },
    Jump { table: "filter", from: "OUTPUT", matching: "", to: FIREWALL },
];

/// Whether a chain belongs to kube-proxy.
pub(super) fn is_own_chain(name: &str) -> bool {
    NAT_BASE.contains(&name) || FILTER_BASE.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the chains that belong only to this port.
pub(super) fn of_port(
    port: &(Arc<str>, Protocol),
    frontends: &PortFrontends,
    family: Family,
    settings: &Settings,
) -> Chains {
    let names = Names::of(&port.0, port.1);
    let mut chains = Chains::new();
    for scope in [Scope::Cluster, Scope::Local] {
        let Some((places, affinity)) = places(frontends, scope) else { continue };
        let mut rules = Vec::new();
        for (frontend, backend) in frontends {
            rules.extend(masquerade_rule(frontend, backend, scope, family, settings));
        }
        rules.extend(picking_rules(&names, places, affinity));
        chains.insert(names.to(scope), rules);
        for endpoint in places {
            chains.entry(names.endpoint(endpoint)).or_insert_with(|| endpoint_rules(&names, endpoint, affinity));
        }
    }
    let outside = frontends.values().find(|backend| backend.entrance != FrontendKind::ClusterIp);
    if let Some(backend) = outside.filter(|backend| is_usable(backend)) {
        chains.insert(names.external(), external_rules(&names, backend, family, settings));
    }
    let guarded = frontends.values().find(|backend| !backend.allowed.is_empty());
    if let Some(backend) = guarded.filter(|backend| is_usable(backend)) {
        let to = names.external();
        let allowed = backend.allowed.iter().map(|range| format!("-s {range} -j {to}"));
        chains.insert(names.firewall(), allowed.collect());
    }
    chains
}

/// Formats the rules that mark packets for masquerading, and those that masquerade marked packets.
pub(super) fn nat_base(text: &mut String, family: Family, settings: &Settings) {
    let mark = settings.mark;
    let _ = writeln!(text, "-A KUBE-POSTROUTING -m mark ! --mark {mark:#x}/{mark:#x} -j RETURN");
    // Clears the mark, because a packet that goes through a tunnel traverses this chain again.
    let _ = writeln!(text, "-A KUBE-POSTROUTING -j MARK --xor-mark {mark:#x}");
    let comment_match = comment("kubernetes service traffic requiring SNAT");
    let _ = writeln!(text, "-A KUBE-POSTROUTING {comment_match} -j MASQUERADE --random-fully");
    let _ = writeln!(text, "-A KUBE-MARK-MASQ -j MARK --or-mark {mark:#x}");
    for pods in pods(family, settings) {
        let _ = writeln!(text, "-A KUBE-MARK-FOREIGN -s {pods} -j RETURN");
    }
    text.push_str("-A KUBE-MARK-FOREIGN -j KUBE-MARK-MASQ\n");
}

/// Formats the rules that jump to the chains of a port.
pub(super) fn nat_entrances(text: &mut String, name: &str, protocol: Protocol, frontends: &PortFrontends) {
    let names = Names::of(name, protocol);
    for (frontend, backend) in frontends {
        let to = match (backend.entrance, &backend.outside) {
            (FrontendKind::ClusterIp, Forwarding::Endpoints { scope, .. }) => names.to(*scope),
            (FrontendKind::ClusterIp, Forwarding::Reject | Forwarding::Drop) => continue,
            _ if !is_usable(backend) => continue,
            _ if !backend.allowed.is_empty() => names.firewall(),
            _ => names.external(),
        };
        let chain = if backend.entrance == FrontendKind::NodePort { "KUBE-NODEPORTS" } else { "KUBE-SERVICES" };
        let what = comment(&format!("{name} {}", describe_frontend(backend.entrance)));
        let _ = writeln!(text, "-A {chain} {what} {} -j {to}", matching(frontend));
    }
}

/// Formats the last rules of KUBE-SERVICES: node ports.
pub(super) fn nat_node_ports(text: &mut String, family: Family, settings: &Settings) {
    let comment_match = comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain");
    let mut lead = |to: &str| {
        let _ = writeln!(text, "-A KUBE-SERVICES {comment_match} {to} -j KUBE-NODEPORTS");
    };
    if settings.every_address {
        let here = "-m addrtype --dst-type LOCAL";
        match (family, settings.localhost) {
            (Family::Ip, true) => lead(here),
            (Family::Ip, false) => lead(&format!("{here} ! -d 127.0.0.0/8")),
            // Packets from the IPv6 loopback address cannot be sent to another host.
            (Family::Ip6, _) => lead(&format!("{here} ! -d ::1/128")),
        }
    } else {
        let own = settings.node_addresses.iter().filter(|ip| Family::of(**ip) == family);
        own.for_each(|ip| lead(&format!("-d {}", alone(*ip))));
    }
}

/// Formats the filter rules of a port. They accept its health checks, drop sources outside of its allowed ranges, and
/// reject or drop traffic without endpoints.
pub(super) fn filter_entrances(text: &mut String, name: &str, protocol: Protocol, frontends: &PortFrontends) {
    debug_assert!(frontends.keys().all(|frontend| frontend.protocol == protocol));
    if let Some(port) = frontends.values().find_map(|backend| backend.health_check_port) {
        // Load balancers must reach the health check, even if other rules of the node reject traffic.
        let comment_match = comment(&format!("{name} health check node port"));
        let _ = writeln!(text, "-A KUBE-NODEPORTS {comment_match} -m tcp -p tcp --dport {port} -j ACCEPT");
    }
    for (frontend, backend) in frontends {
        if !backend.allowed.is_empty() {
            let comment_match = comment(&format!("{name} traffic not accepted by firewall"));
            let _ = writeln!(text, "-A KUBE-PROXY-FIREWALL {comment_match} {} -j DROP", matching(frontend));
        }
        let (comment_match, target) = match backend.outside {
            Forwarding::Endpoints { .. } => continue,
            Forwarding::Reject => ("has no endpoints", "REJECT"),
            Forwarding::Drop => ("has no local endpoints", "DROP"),
        };
        let (chain, matcher) = match backend.entrance {
            FrontendKind::ClusterIp => ("KUBE-SERVICES", ""),
            FrontendKind::ExternalIp | FrontendKind::LoadBalancer => ("KUBE-EXTERNAL-SERVICES", ""),
            FrontendKind::NodePort => ("KUBE-EXTERNAL-SERVICES", "-m addrtype --dst-type LOCAL "),
        };
        let comment_match = comment(&format!("{name} {comment_match}"));
        let _ = writeln!(text, "-A {chain} {comment_match} {matcher}{} -j {target}", matching(frontend));
    }
}

/// Formats the rules that accept forwarded service traffic and protect the loopback interface.
pub(super) fn filter_base(text: &mut String, family: Family, mark: u32) {
    if family == Family::Ip {
        // With route_localnet, neighbours could reach services that listen only on loopback. An earlier run may have
        // enabled it.
        let comment_match = comment("block incoming localnet connections");
        let strangers = "-d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT";
        let _ = writeln!(text, "-A {FIREWALL} {comment_match} {strangers} -j DROP");
    }
    text.push_str("-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n");
    let comment_match = comment("kubernetes forwarding rules");
    let _ = writeln!(text, "-A KUBE-FORWARD {comment_match} -m mark --mark {mark:#x}/{mark:#x} -j ACCEPT");
    let comment_match = comment("kubernetes forwarding conntrack rule");
    let _ = writeln!(text, "-A KUBE-FORWARD {comment_match} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT");
}

/// Chain names of a port.
struct Names<'a> {
    name: &'a str,
    protocol: &'static str,
    hash: String,
}

impl<'a> Names<'a> {
    fn of(name: &'a str, protocol: Protocol) -> Self {
        let protocol = word(protocol);
        Self { name, protocol, hash: hash(&[name, protocol]) }
    }

    fn to(&self, scope: Scope) -> String {
        match scope {
            Scope::Cluster => format!("KUBE-SVC-{}", self.hash),
            Scope::Local => format!("KUBE-SVL-{}", self.hash),
        }
    }

    fn external(&self) -> String {
        format!("KUBE-EXT-{}", self.hash)
    }

    fn firewall(&self) -> String {
        format!("KUBE-FW-{}", self.hash)
    }

    fn endpoint(&self, endpoint: &EndpointAddr) -> String {
        let endpoint = SocketAddr::from(*endpoint).to_string();
        format!("KUBE-SEP-{}", hash(&[self.name, self.protocol, &endpoint]))
    }
}

/// Returns the first 16 characters of the base32 hash, as upstream: chain names have at most 28 characters.
fn hash(parts: &[&str]) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut hasher = Sha256::new();
    parts.iter().for_each(|part| hasher.update(part.as_bytes()));
    let digest = hasher.finalize();
    let bits = digest.iter().take(10).fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    (0..16).map(|at| char::from(LETTERS[(bits >> (75 - 5 * at) & 31) as usize])).collect()
}

fn word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

fn describe_frontend(entrance: FrontendKind) -> &'static str {
    match entrance {
        FrontendKind::ClusterIp => "cluster IP",
        FrontendKind::ExternalIp => "external IP",
        FrontendKind::LoadBalancer => "loadbalancer IP",
        FrontendKind::NodePort => "node port",
    }
}

fn comment(text: &str) -> String {
    format!("-m comment --comment \"{text}\"")
}

/// Formats the match options of a frontend.
fn matching(frontend: &Frontend) -> String {
    let protocol = word(frontend.protocol);
    let to = if frontend.is_node_port() { String::new() } else { format!("-d {} ", alone(frontend.address)) };
    format!("-m {protocol} -p {protocol} {to}--dport {}", frontend.port)
}

fn alone(ip: IpAddr) -> Cidr {
    Cidr::around(ip, if ip.is_ipv4() { 32 } else { 128 })
}

fn pods(family: Family, settings: &Settings) -> impl Iterator<Item = &Cidr> {
    settings.pods.iter().filter(move |pods| Family::of(pods.base()) == family)
}

/// Returns endpoints and session affinity of a port; they are the same for all its frontends.
fn places(frontends: &PortFrontends, scope: Scope) -> Option<(&[EndpointAddr], Option<u32>)> {
    let ways = frontends.values().flat_map(|backend| [Some(&backend.outside), backend.internal.as_ref()]).flatten();
    let mut places = ways.filter_map(|way| match way {
        Forwarding::Endpoints { places, scope: of, affinity_seconds, .. } if *of == scope => {
            Some((places.as_slice(), *affinity_seconds))
        }
        _ => None,
    });
    places.next()
}

/// Formats the masquerade rule for the cluster IP, if replies must return through this node.
fn masquerade_rule(
    frontend: &Frontend,
    backend: &Backend,
    scope: Scope,
    family: Family,
    settings: &Settings,
) -> Option<String> {
    let Forwarding::Endpoints { masquerade, scope: of, .. } = &backend.outside else { return None };
    if backend.entrance != FrontendKind::ClusterIp || *of != scope {
        return None;
    }
    let mut blocks = pods(family, settings);
    let unless = match (masquerade, blocks.next(), blocks.next()) {
        (Masquerade::Always, ..) => "-j KUBE-MARK-MASQ".to_owned(),
        // Without known pod CIDRs every client may be a pod. Node-only masquerading is in the external chain.
        (Masquerade::Never | Masquerade::Node, ..) | (Masquerade::ExternalClients, None, _) => return None,
        (Masquerade::ExternalClients, Some(pods), None) => format!("! -s {pods} -j KUBE-MARK-MASQ"),
        (Masquerade::ExternalClients, Some(_), Some(_)) => "-j KUBE-MARK-FOREIGN".to_owned(),
    };
    let what = comment(&format!("{} cluster IP", backend.name));
    Some(format!("{what} {} {unless}", matching(frontend)))
}

/// Formats the endpoint selection: by session affinity, otherwise at random.
fn picking_rules(names: &Names<'_>, places: &[EndpointAddr], affinity: Option<u32>) -> Vec<String> {
    let mut rules = Vec::new();
    let way = |endpoint: &EndpointAddr| {
        (names.endpoint(endpoint), comment(&format!("{} -> {}", names.name, SocketAddr::from(*endpoint))))
    };
    if let Some(seconds) = affinity {
        for endpoint in places {
            let (chain, what) = way(endpoint);
            rules.push(format!("{what} -m recent --name {chain} --rcheck --seconds {seconds} --reap -j {chain}"));
        }
    }
    for (at, endpoint) in places.iter().enumerate() {
        let (chain, what) = way(endpoint);
        let left = places.len() - at;
        rules.push(match left {
            1 => format!("{what} -j {chain}"),
            _ => format!("{what} -m statistic --mode random --probability {:.10} -j {chain}", 1.0 / left as f64),
        });
    }
    rules
}

fn endpoint_rules(names: &Names<'_>, endpoint: &EndpointAddr, affinity: Option<u32>) -> Vec<String> {
    let (what, protocol) = (comment(names.name), names.protocol);
    let remember =
        affinity.map(|_| format!("-m recent --name {} --set ", names.endpoint(endpoint))).unwrap_or_default();
    vec![
        // Hairpin: an endpoint that connects to itself would not accept replies from its own address.
        format!("{what} -s {} -j KUBE-MARK-MASQ", alone(endpoint.0)),
        format!(
            "{what} {remember}-m {protocol} -p {protocol} -j DNAT --to-destination {}",
            SocketAddr::from(*endpoint)
        ),
    ]
}

/// Formats the external chain: traffic is masqueraded if it may leave the node, otherwise it keeps its source.
fn external_rules(names: &Names<'_>, backend: &Backend, family: Family, settings: &Settings) -> Vec<String> {
    let to = |way: &Forwarding| match way {
        Forwarding::Endpoints { scope, .. } => Some(names.to(*scope)),
        Forwarding::Reject | Forwarding::Drop => None,
    };
    let name = names.name;
    let Some(internal) = &backend.internal else {
        let what = comment(&format!("masquerade traffic for {name} external destinations"));
        let go = to(&backend.outside).map(|chain| format!("-j {chain}"));
        return [format!("{what} -j KUBE-MARK-MASQ")].into_iter().chain(go).collect();
    };
    let mut rules = Vec::new();
    if let Some(chain) = to(internal) {
        let what = comment(&format!("pod traffic for {name} external destinations"));
        rules.extend(pods(family, settings).map(|pods| format!("{what} -s {pods} -j {chain}")));
        let what = comment(&format!("LOCAL traffic for {name} external destinations"));
        for target in ["KUBE-MARK-MASQ", &chain] {
            rules.push(format!("{what} -m addrtype --src-type LOCAL -j {target}"));
        }
    }
    rules.extend(to(&backend.outside).map(|chain| format!("-j {chain}")));
    rules
}

/// Whether some client can reach an endpoint.
fn is_usable(backend: &Backend) -> bool {
    [Some(&backend.outside), backend.internal.as_ref()]
        .into_iter()
        .flatten()
        .any(|way| matches!(way, Forwarding::Endpoints { .. }))
}
