//! nftables rules of the pod network: host ports, masquerading, and binding of source addresses to pod links.
//!
//! The rules are a function of the leases, and are replaced in one transaction.
//!
//! Network policies identify pods by their addresses, so a pod must not be able to send from another address. The chain
//! `guard` drops such packets before connection tracking sees them:
//!
//! ```text
//! link . source leased together ──> accept
//! link of a pod: IPv6 neighbour discovery, multicast listener reports ──> accept
//! link of a pod ──> drop
//! source leased to a pod, on any other link ──> drop (if pods are masqueraded: no packet returns with their addresses)
//! ```
//!
//! ARP and neighbour advertisements need no rule: each pod is alone on its link, and the node looks up a pod's MAC
//! address only on the link of its route.

use std::collections::BTreeMap;

use netlink::Protocol;
use netlink::cidr::Cidr;
use netlink::nft::{
    Batch, ChainKind, Compare, Element, Expression, Family, Field, Hook, Key, META_IIFNAME, META_L4PROTO, MapValue,
    Reg, Set, Table, ValueType, Verdict, interface_name,
};

use crate::ipam::{Lease, Leases, host_name};
use crate::mesh::TUNNEL_PORT;

/// Settings that the rules depend on in addition to the leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules<'a> {
    pub table: &'a str,
    /// Pod CIDRs of this node.
    pub pod_cidrs: &'a [Cidr],
    /// Destinations that are not masqueraded.
    pub unmasqueraded: &'a [Cidr],
    /// Whether traffic that leaves the cluster is masqueraded.
    pub masquerade: bool,
    /// Whether a link accepts only packets with its own source addresses.
    pub bind_sources: bool,
}

const HOST_PORTS: &str = "host-ports";
const ITSELF: &str = "itself";
/// Set of the pod links on the node, by interface name.
const LINKS: &str = "links";
/// Set of allowed pairs of link and source address.
const SOURCES: &str = "sources";
/// Set of the addresses of this node's pods.
const ADDRESSES: &str = "addresses";
const PRIORITY_DNAT: i32 = -100;
const PRIORITY_SNAT: i32 = 100;
const PRIORITY_FILTER: i32 = 0;
/// Before any translation.
const PRIORITY_RAW: i32 = -300;
/// FIB type of addresses of this host.
const LOCAL: u32 = 2;
const ICMP_V6: u8 = 58;

/// Returns all rules of both families, replacing existing ones.
pub fn rules(rules: &Rules<'_>, leases: &Leases) -> Batch {
    let mut batch = Batch::new();
    for family in [Family::Ip, Family::Ip6] {
        let table = &mut batch.table(family, rules.table);
        table.replace();
        let mut elements = Elements::default();
        for (owner, lease) in &leases.owners {
            elements.add(family, &host_name(owner), lease);
        }
        host_ports(table, family);
        guard(table, family, rules);
        if rules.bind_sources {
            guard_tunnel(table, family, rules);
        }
        postrouting(table, family, rules);
        elements.add_to(table);
    }
    batch
}

/// Returns the elements that a new lease adds.
pub fn added(table: &str, owner: &str, lease: &Lease) -> Batch {
    changed(owner, lease, |batch, family, elements| elements.add_to(&mut batch.table(family, table)))
}

/// Returns the elements that a released lease removes.
pub fn removed(table: &str, owner: &str, lease: &Lease) -> Batch {
    changed(owner, lease, |batch, family, elements| elements.delete_from(&mut batch.table(family, table)))
}

/// Returns a batch that removes the table.
pub fn no_rules(table: &str) -> Batch {
    let mut batch = Batch::new();
    for family in [Family::Ip, Family::Ip6] {
        batch.table(family, table).add().delete();
    }
    batch
}

fn changed(owner: &str, lease: &Lease, change: impl Fn(&mut Batch, Family, &Elements)) -> Batch {
    let mut batch = Batch::new();
    for family in [Family::Ip, Family::Ip6] {
        let mut elements = Elements::default();
        elements.add(family, &host_name(owner), lease);
        change(&mut batch, family, &elements);
    }
    batch
}

/// Set elements of leases.
#[derive(Default)]
struct Elements {
    /// By protocol, address and port. If two pods claim one host port, which the scheduler normally prevents, the first
    /// keeps it.
    ports: BTreeMap<Vec<u8>, Element>,
    /// Pairs of equal pod addresses, for hairpin traffic.
    itself: Vec<Element>,
    /// All pod links, including those of pods without an address of the family, which must not send at all.
    links: Vec<Element>,
    sources: Vec<Element>,
    addresses: Vec<Element>,
}

impl Elements {
    fn add(&mut self, family: Family, link: &str, lease: &Lease) {
        self.links.push(Element::member(Key::new().interface(link)));
        let Some(ip) = lease.ips.iter().find(|ip| Family::of(**ip) == family) else { return };
        self.itself.push(Element::member(Key::new().ip(*ip).ip(*ip)));
        self.sources.push(Element::member(Key::new().interface(link).ip(*ip)));
        self.addresses.push(Element::member(Key::new().ip(*ip)));
        for port in lease.ports.iter().filter(|port| port.host_port > 0) {
            let host = port.host_ip.filter(|ip| !ip.is_unspecified());
            if host.is_some_and(|host| Family::of(host) != family) {
                continue;
            }
            let host = host.unwrap_or_else(|| family.any());
            let key = Key::new().protocol(port.protocol.number()).ip(host).port(port.host_port);
            let value = MapValue::Value(Key::new().ip(*ip).port(port.container_port).done());
            let element = Element::entry(key, value);
            self.ports.entry(element.key.clone()).or_insert(element);
        }
    }

    fn add_to(&self, table: &mut Table<'_>) {
        table.add_elements(HOST_PORTS, self.ports.values());
        for (set, elements) in self.sets() {
            table.add_elements(set, elements);
        }
    }

    fn delete_from(&self, table: &mut Table<'_>) {
        table.delete_elements(HOST_PORTS, self.ports.values());
        for (set, elements) in self.sets() {
            table.delete_elements(set, elements);
        }
    }

    fn sets(&self) -> [(&'static str, &Vec<Element>); 4] {
        [(ITSELF, &self.itself), (LINKS, &self.links), (SOURCES, &self.sources), (ADDRESSES, &self.addresses)]
    }
}

fn host_ports(table: &mut Table<'_>, family: Family) {
    let key = vec![Field::Protocol, family.address(), Field::Port];
    let holds = ValueType::Values(vec![family.address(), Field::Port]);
    table.set(&Set { name: HOST_PORTS, key, holds, ranges: false, dynamic: false });
    table.chain("to-pods");
    // A host port on one address takes precedence over the same port on all addresses.
    for any_address in [false, true] {
        table.rule("to-pods", &port_lookup(family, any_address));
    }
    for (name, hook) in [("prerouting", Hook::Prerouting), ("output", Hook::Output)] {
        // Before the rules of services, which have the standard priority.
        table.base_chain(name, ChainKind::Nat, hook, PRIORITY_DNAT - 1);
        table.rule(
            name,
            &[
                Expression::DestinationType(Reg(0)),
                Expression::Compare(Reg(0), Compare::Equal, LOCAL.to_ne_bytes().to_vec()),
                Expression::Verdict(Verdict::Jump("to-pods".to_owned())),
            ],
        );
    }
}

/// Drops packets with spoofed sources or forbidden destinations.
fn guard(table: &mut Table<'_>, family: Family, rules: &Rules<'_>) {
    let chain = "guard";
    let address = family.address();
    for (name, key) in
        [(LINKS, vec![Field::Interface]), (SOURCES, vec![Field::Interface, address]), (ADDRESSES, vec![address])]
    {
        table.set(&Set { name, key, holds: ValueType::Nothing, ranges: false, dynamic: false });
    }
    table.base_chain(chain, ChainKind::Filter, Hook::Prerouting, PRIORITY_RAW);
    guard_loopback(table, chain, family);
    if rules.bind_sources {
        bind_sources(table, chain, family, rules);
    }
}

/// Drops packets whose source address does not belong to their input link.
fn bind_sources(table: &mut Table<'_>, chain: &str, family: Family, rules: &Rules<'_>) {
    let (offset, length, _) = source(family);
    table.rule(
        chain,
        &[
            Expression::Meta(META_IIFNAME, Reg(0)),
            Expression::Network(offset, length, Reg(4)),
            Expression::Member { set: SOURCES, key: Reg(0), present: true },
            Expression::Verdict(Verdict::Accept),
        ],
    );
    if family == Family::Ip6 {
        // The kernel forwards neither source, so such packets stay on the pod's link.
        for source in ["fe80::/10", "::/128"] {
            let mut rule = from_pod().to_vec();
            rule.extend([
                Expression::Meta(META_L4PROTO, Reg(0)),
                Expression::Compare(Reg(0), Compare::Equal, vec![ICMP_V6]),
            ]);
            rule.extend(within(family, Side::Source, &source.parse().expect("a constant"), Compare::Equal));
            rule.push(Expression::Verdict(Verdict::Accept));
            table.rule(chain, &rule);
        }
    }
    let [name, member] = from_pod();
    table.rule(chain, &[name, member, Expression::Verdict(Verdict::Drop)]);
    if rules.masquerade {
        table.rule(
            chain,
            &[
                Expression::Meta(META_IIFNAME, Reg(0)),
                Expression::Compare(Reg(0), Compare::Different, interface_name("lo")),
                Expression::Network(offset, length, Reg(0)),
                Expression::Member { set: ADDRESSES, key: Reg(0), present: true },
                Expression::Verdict(Verdict::Drop),
            ],
        );
    }
}

/// Matches packets from a pod link.
fn from_pod() -> [Expression; 2] {
    [Expression::Meta(META_IIFNAME, Reg(0)), Expression::Member { set: LINKS, key: Reg(0), present: true }]
}

/// Blocks pods from the VXLAN tunnel between nodes, which trusts its senders: an inner packet may have any source.
///
/// The rules come after service translation, because a Service may lead to the tunnel port of a node.
fn guard_tunnel(table: &mut Table<'_>, family: Family, rules: &Rules<'_>) {
    let to_tunnel = [
        Expression::Meta(META_L4PROTO, Reg(0)),
        Expression::Compare(Reg(0), Compare::Equal, vec![Protocol::Udp.number()]),
        Expression::Transport(2, 2, Reg(0)),
        Expression::Compare(Reg(0), Compare::Equal, TUNNEL_PORT.to_be_bytes().to_vec()),
    ];
    let pods = || rules.pod_cidrs.iter().chain(rules.unmasqueraded).filter(|block| Family::of(block.base()) == family);
    let rule = |parts: &[&[Expression]], verdict| {
        let mut rule = to_tunnel.to_vec();
        rule.extend(parts.concat());
        rule.push(Expression::Verdict(verdict));
        rule
    };
    // To this node: blocks also pods of other nodes.
    table.base_chain("input", ChainKind::Filter, Hook::Input, PRIORITY_FILTER);
    table.rule("input", &rule(&[&from_pod()], Verdict::Drop));
    for block in pods() {
        let source = within(family, Side::Source, block, Compare::Equal);
        table.rule("input", &rule(&[&source], Verdict::Drop));
    }
    // To other nodes, which would see this node as the sender. Pods may use VXLAN among themselves.
    table.base_chain("forward", ChainKind::Filter, Hook::Forward, PRIORITY_FILTER);
    for block in pods() {
        let destination = within(family, Side::Destination, block, Compare::Equal);
        table.rule("forward", &rule(&[&destination], Verdict::Accept));
    }
    table.rule("forward", &rule(&[&from_pod()], Verdict::Drop));
}

/// Drops packets to loopback addresses that arrive on any link except `lo`: the link of a pod with host ports has
/// `route_localnet`.
fn guard_loopback(table: &mut Table<'_>, chain: &str, family: Family) {
    let Some(loopback) = loopback(family) else { return };
    let mut rule = vec![
        Expression::Meta(META_IIFNAME, Reg(0)),
        Expression::Compare(Reg(0), Compare::Different, interface_name("lo")),
    ];
    rule.extend(within(family, Side::Destination, &loopback, Compare::Equal));
    rule.push(Expression::Verdict(Verdict::Drop));
    table.rule(chain, &rule);
}

/// Returns the loopback addresses that can be routed to other links; none for IPv6, for which the kernel does not
/// support it.
fn loopback(family: Family) -> Option<Cidr> {
    (family == Family::Ip).then(|| "127.0.0.0/8".parse().expect("a constant"))
}

fn port_lookup(family: Family, any_address: bool) -> [Expression; 5] {
    let (offset, length, registers) = destination(family);
    let port = Reg(1 + registers);
    let address = match any_address {
        true => Expression::Load(Reg(1), vec![0; length as usize]),
        false => Expression::Network(offset, length, Reg(1)),
    };
    [
        Expression::Meta(META_L4PROTO, Reg(0)),
        address,
        Expression::Transport(2, 2, port),
        Expression::Lookup { map: HOST_PORTS, key: Reg(0), to: Reg(8) },
        Expression::Dnat { family, address: Reg(8), port: Reg(8 + registers) },
    ]
}

fn postrouting(table: &mut Table<'_>, family: Family, rules: &Rules<'_>) {
    let chain = "postrouting";
    table.base_chain(chain, ChainKind::Nat, Hook::Postrouting, PRIORITY_SNAT);
    let of_family = |blocks: &[Cidr]| -> Vec<Cidr> {
        blocks.iter().filter(|block| Family::of(block.base()) == family).copied().collect()
    };
    let key = vec![family.address(), family.address()];
    table.set(&Set { name: ITSELF, key, holds: ValueType::Nothing, ranges: false, dynamic: false });
    // Hairpin: a pod that reaches itself through another address would not accept replies from its own address.
    table.rule(chain, &hairpin(family));
    if let Some(loopback) = loopback(family) {
        for pods in of_family(rules.pod_cidrs) {
            // With a loopback source address, the pod would reply to itself.
            let mut rule = within(family, Side::Source, &loopback, Compare::Equal);
            rule.extend(within(family, Side::Destination, &pods, Compare::Equal));
            rule.push(Expression::Masquerade);
            table.rule(chain, &rule);
        }
    }
    let own = if rules.masquerade { of_family(rules.pod_cidrs) } else { Vec::new() };
    for own in own {
        for destination_block in of_family(rules.unmasqueraded).into_iter().chain([own, multicast(family)]) {
            let mut rule = within(family, Side::Source, &own, Compare::Equal);
            rule.extend(within(family, Side::Destination, &destination_block, Compare::Equal));
            rule.push(Expression::Verdict(Verdict::Return));
            table.rule(chain, &rule);
        }
        let mut rule = within(family, Side::Source, &own, Compare::Equal);
        rule.push(Expression::Masquerade);
        table.rule(chain, &rule);
    }
}

fn hairpin(family: Family) -> [Expression; 4] {
    let (from, length, registers) = source(family);
    let (to, ..) = destination(family);
    [
        Expression::Network(from, length, Reg(0)),
        Expression::Network(to, length, Reg(registers)),
        Expression::Member { set: ITSELF, key: Reg(0), present: true },
        Expression::Masquerade,
    ]
}

/// Source or destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Source,
    Destination,
}

/// Matches packets whose source or destination is in a block (`Compare::Equal`) or outside of it
/// (`Compare::Different`).
pub fn within(family: Family, side: Side, block: &Cidr, how: Compare) -> Vec<Expression> {
    let (offset, length, _) = match side {
        Side::Source => source(family),
        Side::Destination => destination(family),
    };
    vec![
        Expression::Network(offset, length, Reg(0)),
        Expression::Mask { from: Reg(0), to: Reg(0), mask: block.mask(), flip: vec![0; length as usize] },
        Expression::Compare(Reg(0), how, netlink::cidr::octets(block.base())),
    ]
}

/// Returns the position of the source address in the IP header: offset, length in bytes, length in registers.
pub const fn source(family: Family) -> (u32, u32, u32) {
    match family {
        Family::Ip => (12, 4, 1),
        Family::Ip6 => (8, 16, 4),
    }
}

/// Returns the position of the destination address in the IP header.
pub const fn destination(family: Family) -> (u32, u32, u32) {
    match family {
        Family::Ip => (16, 4, 1),
        Family::Ip6 => (24, 16, 4),
    }
}

fn multicast(family: Family) -> Cidr {
    let text = match family {
        Family::Ip => "224.0.0.0/4",
        Family::Ip6 => "ff00::/8",
    };
    text.parse().expect("a constant")
}
