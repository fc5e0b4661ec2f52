//! The chains that pick an endpoint: one for each number of endpoints, and each way to treat the client.

use net::Cidr;
use net::nft::{Compare, Dynamic, Expression, Family, META_MARK, Reg};
use net::table::{Side, source, within};

use super::{AFFINITY, ENDPOINTS, STICKY, load_key};
use crate::rules::{Frontend, Masquerade};

/// Who a way is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum View {
    /// Those from outside, or everyone.
    Outside,
    /// This node and its pods, where that is another way.
    Inside,
}

/// How a chain picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Picking {
    node_port: bool,
    view: View,
    count: u32,
    /// When the node puts its own address in the client's place.
    pub masquerade: Masquerade,
    affinity_seconds: Option<u32>,
}

impl View {
    /// The number of its first endpoint: both views of a frontend share a map.
    pub const fn first(self) -> u32 {
        match self {
            Self::Outside => 0,
            Self::Inside => 1 << 16,
        }
    }
}

impl Picking {
    /// One of so many endpoints of a frontend.
    pub fn new(frontend: &Frontend, view: View, count: usize, masquerade: Masquerade, affinity: Option<u32>) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX).clamp(1, View::Inside.first());
        Self { node_port: frontend.is_node_port(), view, count, masquerade, affinity_seconds: affinity }
    }

    /// Whether a chain is named as those that pick.
    pub fn is_name(chain: &str) -> bool {
        chain.starts_with("port-") || chain.starts_with("address-")
    }

    /// The chain's name.
    pub fn name(&self) -> String {
        let at = if self.node_port { "port" } else { "address" };
        let inside = if self.view == View::Inside { "-inside" } else { "" };
        let masquerade = match self.masquerade {
            Masquerade::Never => "",
            Masquerade::Foreign => "-foreign",
            Masquerade::Node => "-node",
            Masquerade::Always => "-always",
        };
        let sticks = self.affinity_seconds.map(|seconds| format!("-{seconds}s")).unwrap_or_default();
        format!("{at}-{}{inside}{masquerade}{sticks}", self.count)
    }
}

/// Marks a packet for masquerading, unless it comes from one of these.
pub fn mark_rule(family: Family, mark: u32, unless_from: &[Cidr]) -> Vec<Expression> {
    let mut rule = Vec::new();
    for block in unless_from {
        rule.extend(within(family, Side::Source, block, Compare::Different));
    }
    let (keep, set) = ((!mark).to_ne_bytes().to_vec(), mark.to_ne_bytes().to_vec());
    rule.push(Expression::Meta(META_MARK, Reg(0)));
    rule.push(Expression::Mask { from: Reg(0), to: Reg(0), mask: keep, flip: set });
    rule.push(Expression::SetMeta(META_MARK, Reg(0)));
    rule
}

/// Picks an endpoint and goes there.
///
/// A client that sticks is looked for first. An endpoint that is no longer one of the service's is forgotten: the packets that
/// remember it are the kernel's, which nobody reads back.
pub fn picking_rules(family: Family, picking: Picking) -> Vec<Vec<Expression>> {
    let (_, _, words) = source(family);
    let after_key = Reg(2 + words);
    let pick = |to: Reg| {
        vec![
            Expression::Random { below: picking.count, first: picking.view.first(), to: after_key },
            Expression::Look { map: ENDPOINTS, key: Reg(0), to },
        ]
    };
    let dnat = |address: Reg| Expression::Dnat { family, address, port: Reg(address.0 + words) };
    let key = load_key(family, picking.node_port).to_vec();
    // The last place where an address and a port fit.
    let place = Reg(15 - words);
    let Some(seconds) = picking.affinity_seconds else {
        return vec![[key, pick(place), vec![dnat(place)]].concat()];
    };
    let (offset, length, _) = source(family);
    let client = Expression::Network(offset, length, after_key);
    let remember = |action| Expression::Dynamic {
        action,
        set: AFFINITY,
        key: Reg(0),
        value: Some(place),
        timeout_ms: (action == Dynamic::Update).then(|| u64::from(seconds) * 1000),
    };
    let copy = |from: Reg, to: Reg, length: u32| Expression::Mask {
        from,
        to,
        mask: vec![0xff; length as usize],
        flip: vec![0; length as usize],
    };
    let port = Reg(place.0 + words);
    let again = vec![
        client.clone(),
        Expression::Look { map: AFFINITY, key: Reg(0), to: place },
        remember(Dynamic::Update),
        copy(place, after_key, length),
        copy(port, Reg(after_key.0 + words), 4),
        Expression::Member { set: STICKY, key: Reg(0), present: true },
        dnat(after_key),
    ];
    let anew = [
        pick(place),
        // What is there is only kept for longer: to change it, it has to go. A map wants to be told the value even then.
        vec![client, remember(Dynamic::Delete), remember(Dynamic::Update), dnat(place)],
    ]
    .concat();
    vec![[key.clone(), again].concat(), [key, anew].concat()]
}
