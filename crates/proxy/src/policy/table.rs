//! Limits as packet rules: a chain for each list of what is allowed, and one set for all peers.
//!
//! Only what goes through the node is judged, after services have been translated: a node may always talk to its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use net::nft::{
    Batch, CT_STATE, ChainKind, Compare, Element, Expression, Family, Field, Held, Holds, Hook, Key, META_L4PROTO, Reg,
    Set, Table, Verdict,
};
use net::table::{destination, source};

use super::{Allow, Direction, Limits, Ports, Range};

/// The table's name.
pub const TABLE: &str = "knarr-policies";

const PEERS: &str = "peers";
const INGRESS: &str = "ingress";
const EGRESS: &str = "egress";
const PRIORITY: i32 = 0;
/// The kernel knows the connection, or the one that it belongs to.
const STATE_KNOWN: u32 = 2 | 4;

/// Lists of what is allowed and lists of peers, each with a number.
#[derive(Default)]
struct Numbers<'a> {
    lists: BTreeMap<(u8, &'a [Allow]), u32>,
    peers: BTreeMap<Vec<Range>, u32>,
}

/// All rules for these limits, whatever was there before.
pub fn rules(limits: &BTreeMap<IpAddr, Limits>) -> Batch {
    let mut batch = Batch::new();
    for family in [Family::Ip, Family::Ip6] {
        let own: BTreeMap<IpAddr, &Limits> =
            limits.iter().filter(|(ip, _)| Family::of(**ip) == family).map(|(ip, limits)| (*ip, limits)).collect();
        write(&mut batch.table(family, TABLE), family, &own);
    }
    batch
}

/// No rules.
pub fn no_rules() -> Batch {
    let mut batch = Batch::new();
    for family in [Family::Ip, Family::Ip6] {
        batch.table(family, TABLE).add().delete();
    }
    batch
}

fn write(table: &mut Table<'_>, family: Family, limits: &BTreeMap<IpAddr, &Limits>) {
    table.replace();
    let set = |name, key, holds, ranges| Set { name, key, holds, ranges, dynamic: false };
    table.set(&set(PEERS, vec![Field::Number, family.address()], Holds::Nothing, true));
    let mut numbers = Numbers::default();
    for (name, direction) in [(INGRESS, Direction::Ingress), (EGRESS, Direction::Egress)] {
        table.set(&set(name, vec![family.address()], Holds::Verdicts, false));
        let mut elements = BTreeSet::new();
        for (ip, limits) in limits {
            let side = match direction {
                Direction::Ingress => limits.ingress.as_deref(),
                Direction::Egress => limits.egress.as_deref(),
            };
            let Some(allows) = side else { continue };
            let chain = numbers.chain(table, family, direction, allows);
            elements.insert(Element::entry(Key::new().ip(*ip), Held::Verdict(Verdict::Jump(chain))));
        }
        table.add_elements(name, &elements);
    }
    let peers = numbers.peers.iter().flat_map(|(ranges, number)| {
        ranges.iter().map(move |(first, last)| Element {
            key_end: Some(Key::new().number(*number).ip(*last).done()),
            ..Element::member(Key::new().number(*number).ip(*first))
        })
    });
    table.add_elements(PEERS, &peers.collect::<Vec<_>>());
    forward(table, family);
}

fn forward(table: &mut Table<'_>, family: Family) {
    let chain = "forward";
    table.base_chain(chain, ChainKind::Filter, Hook::Forward, PRIORITY);
    let known = STATE_KNOWN.to_ne_bytes().to_vec();
    table.rule(
        chain,
        &[
            Expression::Ct(CT_STATE, Reg(0)),
            Expression::Mask { from: Reg(0), to: Reg(0), mask: known, flip: vec![0; 4] },
            Expression::Compare(Reg(0), Compare::Different, vec![0; 4]),
            Expression::Verdict(Verdict::Accept),
        ],
    );
    for (map, (offset, length, _)) in [(EGRESS, source(family)), (INGRESS, destination(family))] {
        table.rule(chain, &[Expression::Network(offset, length, Reg(0)), Expression::Decide { map, key: Reg(0) }]);
    }
}

impl<'a> Numbers<'a> {
    /// The chain of a list of what is allowed, which pods with the same list share.
    fn chain(&mut self, table: &mut Table<'_>, family: Family, direction: Direction, allows: &'a [Allow]) -> String {
        let next = u32::try_from(self.lists.len()).unwrap_or(u32::MAX);
        let side = u8::from(direction == Direction::Egress);
        let known = self.lists.get(&(side, allows)).copied();
        let name = format!("allow-{}", known.unwrap_or(next));
        if known.is_some() {
            return name;
        }
        self.lists.insert((side, allows), next);
        table.chain(&name);
        for allow in allows {
            let Some(from) = self.with_peers(family, direction, allow) else { continue };
            match &allow.ports {
                None => {
                    table.rule(&name, &[from, vec![Expression::Verdict(Verdict::Return)]].concat());
                }
                Some(list) => {
                    for ports in list {
                        let verdict = vec![Expression::Verdict(Verdict::Return)];
                        table.rule(&name, &[from.clone(), at_ports(ports), verdict].concat());
                    }
                }
            }
        }
        table.rule(&name, &[Expression::Verdict(Verdict::Drop)]);
        name
    }

    /// Goes on for the peers of what is allowed; nothing if there are none of this family.
    fn with_peers(&mut self, family: Family, direction: Direction, allow: &Allow) -> Option<Vec<Expression>> {
        let Some(peers) = &allow.peers else { return Some(Vec::new()) };
        let own: Vec<Range> = peers.iter().filter(|(first, _)| Family::of(*first) == family).copied().collect();
        if own.is_empty() {
            return None;
        }
        let next = u32::try_from(self.peers.len()).unwrap_or(u32::MAX);
        let number = *self.peers.entry(own).or_insert(next);
        let (offset, length, _) = match direction {
            Direction::Ingress => source(family),
            Direction::Egress => destination(family),
        };
        Some(vec![
            Expression::Load(Reg(0), number.to_ne_bytes().to_vec()),
            Expression::Network(offset, length, Reg(1)),
            Expression::Member { set: PEERS, key: Reg(0), present: true },
        ])
    }
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
