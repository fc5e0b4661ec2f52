//! The nftables backend: a few flat maps, and one chain per number of endpoints.
//!
//! A map returns the chain for a protocol, address and port, according to the service's number of endpoints. That chain
//! generates a random number and looks up the endpoint in another map, by the same key and the number. A service is
//! therefore a set of elements in two maps, and 5,000 services need few chains: the kernel loads elements far faster
//! than rules. No state is read back.
//!
//! ```text
//! prerouting, output: services[protocol . address . port] ──> chain "address-3-foreign"
//! chain "address-3-foreign": mark, unless the client is a pod
//!                            endpoints[protocol . address . port . random below 3] ──> dnat
//! input, forward, output: refused[protocol . address . port] ──> reject, drop
//! forward, output after translation: cluster-ips[address] ──> reject
//! postrouting: mark ──> masquerade
//! ```

mod chains;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netlink::Cidr;
use netlink::nft::{
    Batch, CT_STATE, ChainKind, Compare, Element, Expression, Family, Field, Hook, Key, META_MARK, MapValue, Reg,
    Reject, STATE_NEW, Set, Table, ValueType, Verdict,
};
use pod_network::pod_rules::{Side, destination, source, within};

use crate::service_state::{Backend, Changes, Forwarding, Frontend, FrontendKind, Masquerade};
use crate::settings::Settings;

use chains::{ClientScope, Picking, mark_rule, picking_rules};

/// Table name, the same as upstream's, so that one proxy replaces the other without a gap.
pub const TABLE: &str = "kube-proxy";

const SERVICES: &str = "services";
const SERVICES_INTERNAL: &str = "services-inside";
const ENDPOINTS: &str = "endpoints";
/// Maps of services with session affinity: endpoint IDs by number, endpoint IDs by client (`AFFINITY`), and endpoints
/// by ID (`STICKY`).
const ENDPOINT_IDS: &str = "endpoint-ids";
const AFFINITY: &str = "affinity";
const STICKY: &str = "sticky";
const REJECTED: &str = "refused";
/// Frontends rejected for connections from this node, which may use endpoints that external clients may not.
const REJECTED_OUTPUT: &str = "refused-output";
const GUARDED: &str = "guarded";
const ALLOWED: &str = "allowed";
const ITSELF: &str = "itself";
const CLUSTER_IPS: &str = "cluster-ips";
const NODE_ADDRESSES: &str = "node-addresses";
/// Name of a set that identifies the table layout. It must be renamed when chains or sets change.
const LAYOUT: &str = "knarr-3";
const REJECT: &str = "reject";
/// Hook priority of destination translation; `PRIORITY_TRANSLATED` is just after it, `PRIORITY_FILTER` just before.
const PRIORITY_DNAT: i32 = -100;
const PRIORITY_TRANSLATED: i32 = PRIORITY_DNAT + 10;
const PRIORITY_FILTER: i32 = -110;
const PRIORITY_SNAT: i32 = 100;

/// Maximum number of unused chains that are kept. A service that is scaled reuses them, so its transaction creates no new
/// chain, which packets in flight could find empty. Users choose the numbers of endpoints and the affinity timeouts, and
/// each combination needs a chain.
const UNUSED_MAX: usize = 64;

/// Writes rules and tracks the written state.
#[derive(Debug, Default)]
pub struct Writer {
    settings: Settings,
    /// Number of map elements that lead to each chain, at most [`UNUSED_MAX`] of them without any.
    chains: BTreeMap<(Family, Picking), usize>,
    /// Number of frontends per address in shared sets.
    shared: Counts<usize>,
}

/// Values by set name and address.
type Counts<T> = BTreeMap<(&'static str, IpAddr), T>;

/// The table in the kernel before all rules are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExistingTable {
    /// A table with this layout from an earlier run, with these chains.
    Reusable(BTreeSet<(Family, String)>),
    /// No table, or one with another layout.
    New,
}

/// Elements of one address family, by set.
type Elements = BTreeMap<&'static str, BTreeSet<Element>>;

impl Writer {
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Replaces all rules, regardless of the existing state.
    ///
    /// If a table is deleted while a packet traverses its chains, the packet may match no rules. This also applies if
    /// the same transaction creates a new table. Base chains of our layout are therefore kept. The transaction fails if
    /// they have another layout.
    pub fn everything(&mut self, ground: &ExistingTable, settings: Settings, changes: &Changes) -> Batch {
        *self = Self::new(settings);
        let mut batch = Batch::new();
        for family in [Family::Ip, Family::Ip6] {
            base(&mut batch.table(family, TABLE), family, ground, &self.settings);
        }
        self.write(&mut batch, changes);
        if let ExistingTable::Reusable(chains) = ground {
            let used: BTreeSet<(Family, String)> = self.chains.keys().map(|(of, it)| (*of, it.name())).collect();
            for (family, stale) in chains.difference(&used).filter(|(_, name)| Picking::is_name(name)) {
                batch.table(*family, TABLE).delete_chain(stale);
            }
        }
        batch
    }

    /// Returns the batch for a change.
    pub fn change(&mut self, changes: &Changes) -> Batch {
        let mut batch = Batch::new();
        self.write(&mut batch, changes);
        batch
    }

    fn write(&mut self, batch: &mut Batch, changes: &Changes) {
        for family in [Family::Ip, Family::Ip6] {
            let (mut before, mut now) = (Elements::new(), Elements::new());
            let mut counts = Counts::<isize>::new();
            let mut pickings = BTreeMap::<Picking, isize>::new();
            let of_family = changes.frontends.iter().filter(|(frontend, _)| Family::of(frontend.address) == family);
            let mut table = batch.table(family, TABLE);
            for (frontend, (old, new)) in of_family {
                if let Some(old) = old {
                    for picking in add_elements(&mut before, frontend, old) {
                        *pickings.entry(picking).or_default() -= 1;
                    }
                    shared(frontend, old).for_each(|address| *counts.entry(address).or_default() -= 1);
                }
                if let Some(new) = new {
                    for picking in add_elements(&mut now, frontend, new) {
                        *pickings.entry(picking).or_default() += 1;
                    }
                    shared(frontend, new).for_each(|address| *counts.entry(address).or_default() += 1);
                }
            }
            self.count_shared(&counts, &mut before, &mut now);
            let unused = self.add_chains(&mut table, family, &pickings);
            for (set, old) in &before {
                let none = BTreeSet::new();
                table.delete_elements(set, old.difference(now.get(set).unwrap_or(&none)));
            }
            for (set, new) in &now {
                let none = BTreeSet::new();
                table.add_elements(set, new.difference(before.get(set).unwrap_or(&none)));
            }
            for picking in unused {
                table.delete_chain(&picking.name());
            }
        }
    }

    /// Adds chains that are needed from now on. Returns the chains to delete once the elements have changed.
    fn add_chains(
        &mut self,
        table: &mut Table<'_>,
        family: Family,
        changes: &BTreeMap<Picking, isize>,
    ) -> Vec<Picking> {
        for (picking, by) in changes {
            let count = self.chains.entry((family, *picking)).or_insert_with(|| {
                add_chain(table, family, &self.settings, *picking);
                0
            });
            *count = count.saturating_add_signed(*by);
        }
        let is_unused = |(of, _): &(Family, Picking), count: &usize| *of == family && *count == 0;
        if self.chains.iter().filter(|(chain, count)| is_unused(chain, count)).count() <= UNUSED_MAX {
            return Vec::new();
        }
        let unused = self.chains.extract_if(.., |chain, count| is_unused(chain, count));
        unused.map(|((_, picking), _)| picking).collect()
    }

    fn count_shared(&mut self, counts: &Counts<isize>, before: &mut Elements, now: &mut Elements) {
        for ((set, ip), by) in counts {
            let count = self.shared.entry((*set, *ip)).or_default();
            let old = *count;
            *count = count.saturating_add_signed(*by);
            let new = *count;
            if new == 0 {
                self.shared.remove(&(*set, *ip));
            }
            let key = Key::new().ip(*ip);
            let element = Element::member(if *set == ITSELF { key.ip(*ip) } else { key });
            match (old, new) {
                (0, 1..) => now.entry(set).or_default().insert(element),
                (1.., 0) => before.entry(set).or_default().insert(element),
                _ => false,
            };
        }
    }
}

/// Returns the elements that several frontends share: local endpoints that may connect to themselves, and the cluster
/// IP, whose other ports are rejected.
fn shared(frontend: &Frontend, backend: &Backend) -> impl Iterator<Item = (&'static str, IpAddr)> {
    let own = (backend.entrance == FrontendKind::ClusterIp).then_some((CLUSTER_IPS, frontend.address));
    backend.here.iter().map(|ip| (ITSELF, *ip)).chain(own)
}

impl ExistingTable {
    /// Lists the chains of an existing table. Assumes that the table exists and has our layout; otherwise the
    /// transaction fails.
    pub fn detect() -> Result<Self, netlink::Error> {
        let mut chains = BTreeSet::new();
        for family in [Family::Ip, Family::Ip6] {
            chains.extend(netlink::nft::chains(family, TABLE)?.into_iter().map(|name| (family, name)));
        }
        Ok(Self::Reusable(chains))
    }
}

/// Returns a batch that removes all rules.
pub fn no_rules() -> Batch {
    let mut batch = Batch::new();
    for family in [Family::Ip, Family::Ip6] {
        batch.table(family, TABLE).add().delete();
    }
    batch
}

fn key(frontend: &Frontend) -> Key {
    Key::new().protocol(frontend.protocol.number()).ip(frontend.address).port(frontend.port)
}

/// Adds the elements of a frontend; returns the chains that they need.
fn add_elements(elements: &mut Elements, frontend: &Frontend, backend: &Backend) -> Vec<Picking> {
    let mut needed = Vec::new();
    let mut add = |set, element| {
        elements.entry(set).or_default().insert(element);
    };
    let views = [(ClientScope::External, Some(&backend.outside)), (ClientScope::Local, backend.internal.as_ref())];
    let ids = endpoint_ids(views.iter().filter_map(|(_, way)| *way));
    for (view, way) in views.into_iter().filter_map(|(view, way)| Some((view, way?))) {
        match way {
            Forwarding::Endpoints { places, masquerade, affinity_seconds, .. } => {
                let picking = Picking::new(frontend, view, places.len(), *masquerade, *affinity_seconds);
                let into = match view {
                    ClientScope::External => SERVICES,
                    ClientScope::Local => SERVICES_INTERNAL,
                };
                add(into, Element::entry(key(frontend), MapValue::Verdict(Verdict::Goto(picking.name()))));
                for (number, (ip, port)) in (view.first()..).zip(places) {
                    let endpoint = MapValue::Value(Key::new().ip(*ip).port(*port).done());
                    if affinity_seconds.is_some() {
                        let id = ids[&(*ip, *port)];
                        let value = MapValue::Value(Key::new().number(id).done());
                        add(ENDPOINT_IDS, Element::entry(key(frontend).number(number), value));
                        add(STICKY, Element::entry(key(frontend).number(id), endpoint));
                    } else {
                        add(ENDPOINTS, Element::entry(key(frontend).number(number), endpoint));
                    }
                }
                needed.push(picking);
            }
            // Internal traffic without endpoints is treated like external traffic.
            Forwarding::Reject | Forwarding::Drop if view == ClientScope::Local => {}
            Forwarding::Reject | Forwarding::Drop => {
                let verdict = if *way == Forwarding::Drop { Verdict::Drop } else { Verdict::Goto(REJECT.to_owned()) };
                let has_internal = matches!(backend.internal, Some(Forwarding::Endpoints { .. }));
                for set in [Some(REJECTED), Some(REJECTED_OUTPUT).filter(|_| !has_internal)].into_iter().flatten() {
                    add(set, Element::entry(key(frontend), MapValue::Verdict(verdict.clone())));
                }
            }
        }
    }
    if !backend.allowed.is_empty() {
        add(GUARDED, Element::member(key(frontend)));
        for range in &backend.allowed {
            let end = key(frontend).ip(range.last()).done();
            add(ALLOWED, Element { key_end: Some(end), ..Element::member(key(frontend).ip(range.base())) });
        }
    }
    needed
}

/// Returns IDs of the endpoints of a frontend. The ID of an endpoint does not depend on the other endpoints, unless two
/// IDs collide.
fn endpoint_ids<'a>(ways: impl Iterator<Item = &'a Forwarding>) -> BTreeMap<(IpAddr, u16), u32> {
    let places: BTreeSet<(IpAddr, u16)> = ways
        .filter_map(|way| match way {
            Forwarding::Endpoints { places, affinity_seconds: Some(_), .. } => Some(places),
            _ => None,
        })
        .flatten()
        .copied()
        .collect();
    let (mut ids, mut taken) = (BTreeMap::new(), BTreeSet::new());
    for endpoint in places {
        let mut id = hash(endpoint);
        while !taken.insert(id) {
            id = id.wrapping_add(1);
        }
        ids.insert(endpoint, id);
    }
    ids
}

/// FNV-1a of an address and a port.
fn hash((ip, port): (IpAddr, u16)) -> u32 {
    let bytes = Key::new().ip(ip).port(port).done();
    bytes.into_iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Creates the sets and base chains.
fn base(table: &mut Table<'_>, family: Family, ground: &ExistingTable, settings: &Settings) {
    match ground {
        ExistingTable::Reusable(_) => {
            for set in [
                LAYOUT,
                SERVICES,
                SERVICES_INTERNAL,
                REJECTED,
                REJECTED_OUTPUT,
                ENDPOINTS,
                ENDPOINT_IDS,
                STICKY,
                GUARDED,
                ALLOWED,
                ITSELF,
                CLUSTER_IPS,
                NODE_ADDRESSES,
            ] {
                table.flush_set(set);
            }
        }
        ExistingTable::New => sets(table.replace(), family),
    }
    let addresses = settings.node_addresses.iter().filter(|ip| Family::of(**ip) == family);
    let addresses: Vec<Element> = addresses.map(|ip| Element::member(Key::new().ip(*ip))).collect();
    table.add_elements(NODE_ADDRESSES, &addresses);
    translate(table, family, settings);
    filter(table, family);
    postrouting(table, family, settings.mark);
}

fn sets(table: &mut Table<'_>, family: Family) {
    let front = || vec![Field::Protocol, family.address(), Field::Port];
    let endpoint_fields = || vec![family.address(), Field::Port];
    let plus = |more: &[Field]| [front().as_slice(), more].concat();
    let set = |name, key, holds| Set { name, key, holds, ranges: false, dynamic: false };
    table.set(&set(LAYOUT, vec![Field::Port], ValueType::Nothing));
    table.set(&set(SERVICES, front(), ValueType::Verdicts));
    table.set(&set(SERVICES_INTERNAL, front(), ValueType::Verdicts));
    table.set(&set(REJECTED, front(), ValueType::Verdicts));
    table.set(&set(REJECTED_OUTPUT, front(), ValueType::Verdicts));
    table.set(&set(ENDPOINTS, plus(&[Field::Number]), ValueType::Values(endpoint_fields())));
    let id = || vec![Field::Number];
    table.set(&set(ENDPOINT_IDS, plus(&id()), ValueType::Values(id())));
    table.set(&Set { dynamic: true, ..set(AFFINITY, plus(&[family.address()]), ValueType::Values(id())) });
    table.set(&set(STICKY, plus(&id()), ValueType::Values(endpoint_fields())));
    table.set(&set(GUARDED, front(), ValueType::Nothing));
    table.set(&Set { ranges: true, ..set(ALLOWED, plus(&[family.address()]), ValueType::Nothing) });
    table.set(&set(ITSELF, vec![family.address(), family.address()], ValueType::Nothing));
    table.set(&set(CLUSTER_IPS, vec![family.address()], ValueType::Nothing));
    table.set(&set(NODE_ADDRESSES, vec![family.address()], ValueType::Nothing));
}

/// Loads the key of a frontend into the first registers.
fn load_key(family: Family, node_port: bool) -> [Expression; 3] {
    let (offset, length, registers) = destination(family);
    let address = match node_port {
        true => Expression::Load(Reg(1), vec![0; length as usize]),
        false => Expression::Network(offset, length, Reg(1)),
    };
    [Expression::Meta(netlink::nft::META_L4PROTO, Reg(0)), address, Expression::Transport(2, 2, Reg(1 + registers))]
}

/// Adds rules that look up a verdict in a map, first by destination address, then as node port.
fn decide(table: &mut Table<'_>, chain: &str, family: Family, map: &'static str, first: &[Expression]) {
    let (offset, length, _) = destination(family);
    let to_node = [
        Expression::Network(offset, length, Reg(0)),
        Expression::Member { set: NODE_ADDRESSES, key: Reg(0), present: true },
    ];
    for node_port in [false, true] {
        let mut rule = first.to_vec();
        rule.extend(to_node.iter().filter(|_| node_port).cloned());
        rule.extend(load_key(family, node_port));
        rule.push(Expression::VerdictMap { map, key: Reg(0) });
        table.rule(chain, &rule);
    }
}

fn translate(table: &mut Table<'_>, family: Family, settings: &Settings) {
    for (chain, hook) in [("nat-prerouting", Hook::Prerouting), ("nat-output", Hook::Output)] {
        table.base_chain(chain, ChainKind::Nat, hook, PRIORITY_DNAT).flush_chain(chain);
    }
    for pods in settings.pods.iter().filter(|pods| Family::of(pods.base()) == family) {
        let from_pods = within(family, Side::Source, pods, Compare::Equal);
        decide(table, "nat-prerouting", family, SERVICES_INTERNAL, &from_pods);
    }
    decide(table, "nat-output", family, SERVICES_INTERNAL, &[]);
    for chain in ["nat-prerouting", "nat-output"] {
        decide(table, chain, family, SERVICES, &[]);
    }
}

fn filter(table: &mut Table<'_>, family: Family) {
    table.chain(REJECT).flush_chain(REJECT);
    table.rule(REJECT, &[Expression::Reject(family, Reject::PortUnreachable)]);
    let state = STATE_NEW.to_ne_bytes().to_vec();
    let first = [
        Expression::Ct(CT_STATE, Reg(0)),
        Expression::Mask { from: Reg(0), to: Reg(0), mask: state.clone(), flip: vec![0; 4] },
        Expression::Compare(Reg(0), Compare::Equal, state),
    ];
    for (chain, hook) in
        [("filter-input", Hook::Input), ("filter-forward", Hook::Forward), ("filter-output", Hook::Output)]
    {
        table.base_chain(chain, ChainKind::Filter, hook, PRIORITY_FILTER).flush_chain(chain);
        let rejected_set = if hook == Hook::Output { REJECTED_OUTPUT } else { REJECTED };
        decide(table, chain, family, rejected_set, &first);
    }
    // After translation, packets to a cluster IP are for a port that the service does not have.
    let (to, length, _) = destination(family);
    let unknown = [
        Expression::Network(to, length, Reg(0)),
        Expression::Member { set: CLUSTER_IPS, key: Reg(0), present: true },
        Expression::Verdict(Verdict::Goto(REJECT.to_owned())),
    ];
    let translated = "filter-output-translated";
    table.base_chain(translated, ChainKind::Filter, Hook::Output, PRIORITY_TRANSLATED).flush_chain(translated);
    for chain in ["filter-forward", translated] {
        table.rule(chain, &[first.as_slice(), &unknown].concat());
    }
    let chain = "filter-prerouting";
    let (offset, length, registers) = source(family);
    table.base_chain(chain, ChainKind::Filter, Hook::Prerouting, PRIORITY_FILTER).flush_chain(chain);
    let mut rule = first.to_vec();
    rule.extend(load_key(family, false));
    rule.push(Expression::Member { set: GUARDED, key: Reg(0), present: true });
    rule.push(Expression::Network(offset, length, Reg(2 + registers)));
    rule.push(Expression::Member { set: ALLOWED, key: Reg(0), present: false });
    rule.push(Expression::Verdict(Verdict::Drop));
    table.rule(chain, &rule);
}

fn postrouting(table: &mut Table<'_>, family: Family, mark: u32) {
    let chain = "nat-postrouting";
    let (from, length, registers) = source(family);
    let (to, ..) = destination(family);
    table.base_chain(chain, ChainKind::Nat, Hook::Postrouting, PRIORITY_SNAT).flush_chain(chain);
    // Hairpin: an endpoint that connects to itself would not accept replies from its own address.
    table.rule(
        chain,
        &[
            Expression::Network(from, length, Reg(0)),
            Expression::Network(to, length, Reg(registers)),
            Expression::Member { set: ITSELF, key: Reg(0), present: true },
            Expression::Masquerade,
        ],
    );
    let bit = mark.to_ne_bytes().to_vec();
    let others = (!mark).to_ne_bytes().to_vec();
    table.rule(
        chain,
        &[
            Expression::Meta(META_MARK, Reg(0)),
            Expression::Mask { from: Reg(0), to: Reg(1), mask: bit.clone(), flip: vec![0; 4] },
            Expression::Compare(Reg(1), Compare::Equal, bit),
            // Clears the mark, because a packet that goes through a tunnel traverses this chain again.
            Expression::Mask { from: Reg(0), to: Reg(0), mask: others, flip: vec![0; 4] },
            Expression::SetMeta(META_MARK, Reg(0)),
            Expression::Masquerade,
        ],
    );
}

/// Adds a chain that selects one of a number of endpoints.
fn add_chain(table: &mut Table<'_>, family: Family, settings: &Settings, picking: Picking) {
    let name = picking.name();
    table.chain(&name).flush_chain(&name);
    let pods: Vec<Cidr> = settings.pods.iter().filter(|pods| Family::of(pods.base()) == family).copied().collect();
    match picking.masquerade {
        Masquerade::Never => {}
        // Without known pod CIDRs every client may be a pod.
        Masquerade::ExternalClients if pods.is_empty() => {}
        Masquerade::ExternalClients | Masquerade::Node => {
            table.rule(&name, &mark_rule(family, settings.mark, &pods));
        }
        Masquerade::Always => {
            table.rule(&name, &mark_rule(family, settings.mark, &[]));
        }
    }
    for rule in picking_rules(family, picking) {
        table.rule(&name, &rule);
    }
}
