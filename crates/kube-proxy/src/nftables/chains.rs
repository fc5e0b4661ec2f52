//! nftables chains that select an endpoint: one per number of endpoints and treatment of the client.

use netlink::Cidr;
use netlink::nft::{Compare, Dynamic, Expression, Family, META_MARK, Reg};
use pod_network::pod_rules::{Side, source, within};

use super::{AFFINITY, ENDPOINT_IDS, ENDPOINTS, STICKY, load_key};
use crate::service_state::{Frontend, Masquerade};

/// Clients to which a chain applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClientScope {
    /// External clients, or all clients.
    External,
    /// This node and its pods, if they are treated differently.
    Local,
}

/// Parameters of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Picking {
    node_port: bool,
    view: ClientScope,
    count: u32,
    pub masquerade: Masquerade,
    affinity_seconds: Option<u32>,
}

impl ClientScope {
    /// Returns the number of the view's first endpoint in the map of endpoints, which both views of a frontend share.
    pub(super) const fn first(self) -> u32 {
        match self {
            Self::External => 0,
            Self::Local => 1 << 16,
        }
    }
}

impl Picking {
    /// Creates the parameters for `count` endpoints of a frontend.
    pub(super) fn new(
        frontend: &Frontend,
        view: ClientScope,
        count: usize,
        masquerade: Masquerade,
        affinity: Option<u32>,
    ) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX).clamp(1, ClientScope::Local.first());
        Self { node_port: frontend.is_node_port(), view, count, masquerade, affinity_seconds: affinity }
    }

    /// Whether a name is that of a chain that selects an endpoint.
    pub(super) fn is_name(chain: &str) -> bool {
        chain.starts_with("port-") || chain.starts_with("address-")
    }

    pub(super) fn name(&self) -> String {
        let at = if self.node_port { "port" } else { "address" };
        let suffix = if self.view == ClientScope::Local { "-inside" } else { "" };
        let masquerade = match self.masquerade {
            Masquerade::Never => "",
            Masquerade::ExternalClients => "-foreign",
            Masquerade::Node => "-node",
            Masquerade::Always => "-always",
        };
        let sticks = self.affinity_seconds.map(|seconds| format!("-{seconds}s")).unwrap_or_default();
        format!("{at}-{}{suffix}{masquerade}{sticks}", self.count)
    }
}

/// Marks a packet for masquerading, unless its source is in `unless_from`.
pub(super) fn mark_rule(family: Family, mark: u32, unless_from: &[Cidr]) -> Vec<Expression> {
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

/// Returns rules that select an endpoint and translate to it.
pub(super) fn picking_rules(family: Family, picking: Picking) -> Vec<Vec<Expression>> {
    let (_, _, registers) = source(family);
    let after_key = Reg(2 + registers);
    let number = Expression::Random { below: picking.count, first: picking.view.first(), to: after_key };
    let key = load_key(family, picking.node_port).to_vec();
    // The last registers that can hold an address and a port.
    let endpoint = Reg(15 - registers);
    let dnat = Expression::Dnat { family, address: endpoint, port: Reg(endpoint.0 + registers) };
    match picking.affinity_seconds {
        None => {
            let lookup = Expression::Lookup { map: ENDPOINTS, key: Reg(0), to: endpoint };
            vec![[key, vec![number, lookup, dnat]].concat()]
        }
        Some(seconds) => {
            let [again, anew] = sticking_rules(family, seconds, number, dnat, endpoint);
            vec![[key.clone(), again].concat(), [key, anew].concat()]
        }
    }
}

/// Returns rules that use the endpoint of an earlier connection of the client, otherwise select one.
///
/// The affinity map holds the endpoint's ID. The ID of a removed endpoint matches no endpoint, so stale affinities are
/// harmless and the map is never read back.
fn sticking_rules(
    family: Family,
    seconds: u32,
    number: Expression,
    dnat: Expression,
    endpoint: Reg,
) -> [Vec<Expression>; 2] {
    let (offset, length, registers) = source(family);
    let after_key = Reg(2 + registers);
    let client = Expression::Network(offset, length, after_key);
    let id = Reg(after_key.0 + registers);
    let remember = |action| Expression::Dynamic {
        action,
        set: AFFINITY,
        key: Reg(0),
        value: Some(id),
        timeout_ms: (action == Dynamic::Update).then(|| u64::from(seconds) * 1000),
    };
    let lookup_id = |map| [vec![Expression::Lookup { map, key: Reg(0), to: id }], measure(id, endpoint)].concat();
    let by_id = [
        Expression::Mask { from: id, to: after_key, mask: vec![0xff; 4], flip: vec![0; 4] },
        Expression::Lookup { map: STICKY, key: Reg(0), to: endpoint },
    ];
    let again = [
        vec![client.clone()],
        lookup_id(AFFINITY),
        vec![remember(Dynamic::Update)],
        by_id.to_vec(),
        vec![dnat.clone()],
    ];
    let anew = [
        vec![number],
        lookup_id(ENDPOINT_IDS),
        by_id.to_vec(),
        // An update only extends the timeout, so the element is deleted first to change its value. A map requires the
        // value even to delete.
        vec![client, remember(Dynamic::Delete), remember(Dynamic::Update), dnat],
    ];
    [again.concat(), anew.concat()]
}

/// Moves a number through the packet mark and restores the mark. `nft list` takes the length of an operand from the
/// expression that produced it. A map result has none, and nft 1.0.6 aborts.
fn measure(number: Reg, scratch: Reg) -> Vec<Expression> {
    vec![
        Expression::Meta(META_MARK, scratch),
        Expression::SetMeta(META_MARK, number),
        Expression::Meta(META_MARK, number),
        Expression::SetMeta(META_MARK, scratch),
    ]
}
