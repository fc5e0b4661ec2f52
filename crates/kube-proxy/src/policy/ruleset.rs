//! NetworkPolicy limits as nftables rules: one chain per list of allowed traffic, and one set for all peers.
//!
//! Only forwarded packets are filtered, after service translation: a node can always reach its pods. Packets to a DNS
//! service that the node serves itself are filtered before their translation to an address of the node.
//!
//! ```text
//! forward: ingress[to] ──> chain "allow-3": peers[7 . from], ports ──> pass
//!          egress[from] ──> …              otherwise ──> drop
//! prerouting, to dns: egress[from] ──> …
//! ```

use std::collections::BTreeSet;

use netlink::nft::{
    Batch, CT_STATE, ChainKind, Compare, Element, Expression, Family, Field, Hook, Key, META_L4PROTO, MapValue, Reg,
    Set, Table, ValueType, Verdict,
};
use pod_network::pod_rules::{destination, source};

use super::state::{Chain, Change, Numbers, Pass, State};
use super::{Decision, Direction, Ports, Range};

pub const TABLE: &str = "knarr-policies";

/// Prefix of the chains of allowed traffic.
const ALLOW: &str = "allow-";
const PEERS: &str = "peers";
const INGRESS: &str = "ingress";
const EGRESS: &str = "egress";
const DNS: &str = "dns";
const FORWARD: &str = "forward";
const PREROUTING: &str = "prerouting";
/// Name of a set that identifies the table layout. It must be renamed when chains or sets change.
const LAYOUT: &str = "layout-2";
const PRIORITY: i32 = 0;
/// After connection tracking and before service translation.
const PRIORITY_MANGLE: i32 = -150;
/// Conntrack states ESTABLISHED and RELATED.
const STATE_KNOWN: u32 = 2 | 4;
const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

/// Writes rules and tracks the written state.
#[derive(Debug, Default)]
pub struct Writer {
    numbers: Numbers,
    written: State,
}

/// The table in the kernel before all rules are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExistingTable {
    /// A table with this layout from an earlier run, with these chains.
    Reusable(BTreeSet<String>),
    /// No table, or one with another layout.
    New,
}

impl Writer {
    /// Replaces all rules. The transaction fails if the table in the kernel differs from `ground`.
    ///
    /// A table with our layout keeps its base chain: a packet that traverses a chain while the chain is replaced would
    /// not be filtered.
    pub fn everything(&mut self, ground: &ExistingTable, decision: &Decision) -> Batch {
        *self = Self::default();
        let mut batch = Batch::new();
        for family in FAMILIES {
            base(&mut batch.table(family, TABLE), family, ground, decision);
        }
        self.write(&mut batch, decision);
        if let ExistingTable::Reusable(chains) = ground {
            let used: BTreeSet<String> = self.written.chains.keys().map(|number| name(*number)).collect();
            for stale in chains.iter().filter(|chain| chain.starts_with(ALLOW) && !used.contains(*chain)) {
                for family in FAMILIES {
                    // Both families have the same chains, unless another process changed them.
                    batch.table(family, TABLE).chain(stale).delete_chain(stale);
                }
            }
        }
        batch
    }

    /// Returns the batch for another decision; empty if nothing changes.
    pub fn change(&mut self, decision: &Decision) -> Batch {
        let mut batch = Batch::new();
        self.write(&mut batch, decision);
        batch
    }

    fn write(&mut self, batch: &mut Batch, decision: &Decision) {
        let desired = self.numbers.state_of(decision);
        let change = self.written.change_to(&desired);
        for family in FAMILIES {
            apply(&mut batch.table(family, TABLE), family, &change);
        }
        self.written = desired;
    }
}

impl ExistingTable {
    /// Lists the chains of the table of an earlier run; `None` without one. Assumes our layout; with another one the
    /// transaction fails.
    pub fn detect() -> Result<Option<Self>, netlink::Error> {
        let mut chains = BTreeSet::new();
        for family in FAMILIES {
            chains.extend(netlink::nft::chains(family, TABLE)?);
        }
        Ok((!chains.is_empty()).then_some(Self::Reusable(chains)))
    }
}

/// Returns a batch that removes all rules.
pub fn no_rules() -> Batch {
    let mut batch = Batch::new();
    for family in FAMILIES {
        batch.table(family, TABLE).add().delete();
    }
    batch
}

fn base(table: &mut Table<'_>, family: Family, ground: &ExistingTable, decision: &Decision) {
    match ground {
        ExistingTable::Reusable(_) => {
            for set in [LAYOUT, PEERS, INGRESS, EGRESS, DNS] {
                table.flush_set(set);
            }
        }
        ExistingTable::New => {
            table.replace();
            let set = |name, key, holds, ranges| Set { name, key, holds, ranges, dynamic: false };
            table.set(&set(LAYOUT, vec![Field::Port], ValueType::Nothing, false));
            table.set(&set(PEERS, vec![Field::Number, family.address()], ValueType::Nothing, true));
            for name in [INGRESS, EGRESS] {
                table.set(&set(name, vec![family.address()], ValueType::Verdicts, false));
            }
            table.set(&set(DNS, vec![family.address()], ValueType::Nothing, false));
        }
    }
    let dns = decision.dns.iter().filter(|ip| Family::of(**ip) == family);
    let dns: Vec<Element> = dns.map(|ip| Element::member(Key::new().ip(*ip))).collect();
    table.add_elements(DNS, &dns);
    forward(table, family);
    prerouting(table, family);
}

fn prerouting(table: &mut Table<'_>, family: Family) {
    table.base_chain(PREROUTING, ChainKind::Filter, Hook::Prerouting, PRIORITY_MANGLE).flush_chain(PREROUTING);
    table.rule(PREROUTING, &pass_known());
    let ((to, to_length, _), (from, from_length, _)) = (destination(family), source(family));
    table.rule(
        PREROUTING,
        &[
            Expression::Network(to, to_length, Reg(0)),
            Expression::Member { set: DNS, key: Reg(0), present: true },
            Expression::Network(from, from_length, Reg(0)),
            Expression::VerdictMap { map: EGRESS, key: Reg(0) },
        ],
    );
}

/// Accepts packets of established and related connections.
fn pass_known() -> [Expression; 4] {
    let known = STATE_KNOWN.to_ne_bytes().to_vec();
    [
        Expression::Ct(CT_STATE, Reg(0)),
        Expression::Mask { from: Reg(0), to: Reg(0), mask: known, flip: vec![0; 4] },
        Expression::Compare(Reg(0), Compare::Different, vec![0; 4]),
        Expression::Verdict(Verdict::Accept),
    ]
}

fn forward(table: &mut Table<'_>, family: Family) {
    table.base_chain(FORWARD, ChainKind::Filter, Hook::Forward, PRIORITY).flush_chain(FORWARD);
    table.rule(FORWARD, &pass_known());
    for (map, (offset, length, _)) in [(EGRESS, source(family)), (INGRESS, destination(family))] {
        table
            .rule(FORWARD, &[Expression::Network(offset, length, Reg(0)), Expression::VerdictMap { map, key: Reg(0) }]);
    }
}

/// Applies the part of a change for one address family. Both families have the same chains. A peer list without members
/// of a family allows no peer of that family.
fn apply(table: &mut Table<'_>, family: Family, change: &Change) {
    for (number, chain) in &change.chains {
        write_chain(table, family, &name(*number), chain);
    }
    for (map, direction) in [(INGRESS, Direction::Ingress), (EGRESS, Direction::Egress)] {
        let elements = |list: &[(Direction, std::net::IpAddr, u32)]| -> Vec<Element> {
            let own = list.iter().filter(|(side, ip, _)| *side == direction && Family::of(*ip) == family);
            let jump = |number: u32| MapValue::Verdict(Verdict::Jump(name(number)));
            own.map(|(_, ip, number)| Element::entry(Key::new().ip(*ip), jump(*number))).collect()
        };
        table.delete_elements(map, &elements(&change.pods.removed)).add_elements(map, &elements(&change.pods.new));
    }
    let elements = |list: &[(u32, Range)]| -> Vec<Element> {
        let own = list.iter().filter(|(_, (first, _))| Family::of(*first) == family);
        let member = |number: u32, (first, last): Range| Element {
            key_end: Some(Key::new().number(number).ip(last).done()),
            ..Element::member(Key::new().number(number).ip(first))
        };
        own.map(|(number, range)| member(*number, *range)).collect()
    };
    table.delete_elements(PEERS, &elements(&change.peers.removed)).add_elements(PEERS, &elements(&change.peers.new));
    for number in &change.removed_chains {
        table.delete_chain(&name(*number));
    }
}

fn name(number: u32) -> String {
    format!("{ALLOW}{number}")
}

fn write_chain(table: &mut Table<'_>, family: Family, name: &str, chain: &Chain) {
    table.chain(name).flush_chain(name);
    for Pass { peers, ports } in &chain.passes {
        let with = peers.map(|number| with_peers(family, chain.direction, number)).unwrap_or_default();
        let places: Vec<Vec<Expression>> = match ports {
            None => vec![Vec::new()],
            Some(list) => list.iter().map(at_ports).collect(),
        };
        for at in places {
            table.rule(name, &[with.clone(), at, vec![Expression::Verdict(Verdict::Return)]].concat());
        }
    }
    table.rule(name, &[Expression::Verdict(Verdict::Drop)]);
}

/// Matches packets whose other side is in a peer list.
fn with_peers(family: Family, direction: Direction, number: u32) -> Vec<Expression> {
    let (offset, length, _) = match direction {
        Direction::Ingress => source(family),
        Direction::Egress => destination(family),
    };
    vec![
        Expression::Load(Reg(0), number.to_ne_bytes().to_vec()),
        Expression::Network(offset, length, Reg(1)),
        Expression::Member { set: PEERS, key: Reg(0), present: true },
    ]
}

fn at_ports(ports: &Ports) -> Vec<Expression> {
    vec![
        Expression::Meta(META_L4PROTO, Reg(0)),
        Expression::Compare(Reg(0), Compare::Equal, vec![ports.protocol.number()]),
        Expression::Transport(2, 2, Reg(0)),
        Expression::Compare(Reg(0), Compare::AtLeast, ports.first.to_be_bytes().to_vec()),
        Expression::Compare(Reg(0), Compare::AtMost, ports.last.to_be_bytes().to_vec()),
    ]
}
