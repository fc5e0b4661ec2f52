//! Frontends and backends: where packets to an address and port go, as data.
//!
//! A [`Frontend`] is an address and port that belongs to a service; a port of every node is one with the address of nobody. A
//! [`Backend`] says what becomes of the first packet of a connection to it. [`Rules`] follows services and slices one at a time
//! and says what each change adds and takes, so that the work is that of the change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use machinery::{Key, Value};
use net::{Cidr, Protocol};

use crate::choose::{Chosen, Place, choose};
use crate::model::{Node, Service, ServicePort, Slice};

/// Where packets go that a service cares for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frontend {
    /// The address; that of nobody for a port of the node.
    pub address: IpAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
}

/// What becomes of connections to a frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// The service's port, as upstream writes it: `namespace/name:port`.
    pub name: Arc<str>,
    /// What the frontend is to the service.
    pub entrance: Entrance,
    /// From outside, or from anywhere if there is no difference.
    pub outside: Way,
    /// From this node and its pods, if that is another way.
    pub inside: Option<Way>,
    /// Who may come, if not everyone.
    pub allowed: Vec<Cidr>,
    /// Its endpoints on this node, which may come to themselves.
    pub here: Vec<IpAddr>,
    /// Where load balancers ask whether this node has endpoints.
    pub health_check_port: Option<u16>,
}

/// What a frontend is to its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entrance {
    /// Its own address.
    ClusterIp,
    /// An address from outside.
    ExternalIp,
    /// An address of a load balancer.
    LoadBalancer,
    /// A port of every node.
    NodePort,
}

/// Where the endpoints of a way are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Wherever the hints want them.
    Anywhere,
    /// On this node.
    Here,
}

/// A way for connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// To one of these.
    To {
        /// The endpoints; there is at least one.
        places: Vec<Place>,
        /// Where they are.
        scope: Scope,
        /// When the node puts its own address in the client's place.
        masquerade: Masquerade,
        /// How long a client sticks to an endpoint.
        affinity_seconds: Option<u32>,
    },
    /// Refused: nobody is there.
    Refuse,
    /// Dropped: somebody is there, but not here.
    Drop,
}

/// When the node puts its own address in the client's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Masquerade {
    /// Never, but for an endpoint that comes to itself.
    Never,
    /// If the client is no pod, where it is known what pods are.
    Foreign,
    /// If the client is this node: of those who come from inside, the others are pods.
    Node,
    /// Always: the answer must come back this way.
    Always,
}

/// Whether this node has endpoints, for load balancers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The service.
    pub service: Key,
    /// How many endpoints are on this node.
    pub local: usize,
}

/// What changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Frontends with what they were before and what they are now.
    pub frontends: BTreeMap<Frontend, (Option<Backend>, Option<Backend>)>,
}

/// What the proxy was told, and the rules that follow.
#[derive(Debug, Default)]
pub struct Rules {
    node: Node,
    masquerade_all: bool,
    services: BTreeMap<Key, Service>,
    slices: BTreeMap<Key, Slice>,
    slices_of: BTreeMap<Key, BTreeSet<Key>>,
    /// What each service wants; two may want the same, and the first by name has it.
    wanted: BTreeMap<Frontend, BTreeMap<Key, Backend>>,
    frontends_of: BTreeMap<Key, BTreeSet<Frontend>>,
    health: BTreeMap<u16, Health>,
    dirty: BTreeSet<Key>,
}

impl Rules {
    /// No services.
    pub fn new(node: Node, masquerade_all: bool) -> Self {
        Self { node, masquerade_all, ..Self::default() }
    }

    /// The node is somewhere else than we thought: every choice may change.
    pub fn set_node(&mut self, node: Node) {
        if self.node != node {
            self.node = node;
            self.dirty.extend(self.services.keys().cloned());
        }
    }

    /// A service is as an object says, or is gone.
    pub fn set_service(&mut self, key: &Key, object: Option<&Value>) {
        let service = object.and_then(Service::read);
        if self.services.get(key) == service.as_ref() {
            return;
        }
        match service {
            Some(service) => self.services.insert(key.clone(), service),
            None => self.services.remove(key),
        };
        self.dirty.insert(key.clone());
    }

    /// A slice is as an object says, or is gone.
    pub fn set_slice(&mut self, key: &Key, object: Option<&Value>) {
        let slice = object.and_then(Slice::read);
        if self.slices.get(key) == slice.as_ref() {
            return;
        }
        if let Some(old) = self.slices.remove(key) {
            if let Some(keys) = self.slices_of.get_mut(&old.service) {
                keys.remove(key);
            }
            self.dirty.insert(old.service);
        }
        if let Some(slice) = slice {
            self.slices_of.entry(slice.service.clone()).or_default().insert(key.clone());
            self.dirty.insert(slice.service.clone());
            self.slices.insert(key.clone(), slice);
        }
    }

    /// What is known of services and of slices.
    pub fn known(&self) -> (Vec<Key>, Vec<Key>) {
        (self.services.keys().cloned().collect(), self.slices.keys().cloned().collect())
    }

    /// What changed since this was asked last.
    pub fn changes(&mut self) -> Changes {
        let mut changes = Changes::default();
        for key in std::mem::take(&mut self.dirty) {
            let new = self.frontends(&key);
            let old = self.frontends_of.remove(&key).unwrap_or_default();
            self.frontends_of.insert(key.clone(), new.keys().copied().collect());
            for frontend in old.difference(&new.keys().copied().collect()) {
                self.want(&mut changes, *frontend, &key, None);
            }
            for (frontend, backend) in new {
                self.want(&mut changes, frontend, &key, Some(backend));
            }
            self.note_health(&key);
        }
        self.frontends_of.retain(|_, frontends| !frontends.is_empty());
        changes.frontends.retain(|_, (before, now)| before != now);
        changes
    }

    /// How many frontends there are.
    pub fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Ports where load balancers ask, with what they are told.
    pub const fn health(&self) -> &BTreeMap<u16, Health> {
        &self.health
    }

    /// Everything, as a change from nothing.
    pub fn everything(&self) -> Changes {
        let active = self.wanted.iter().filter_map(|(frontend, by)| Some((*frontend, by.values().next()?.clone())));
        Changes { frontends: active.map(|(frontend, backend)| (frontend, (None, Some(backend)))).collect() }
    }

    fn want(&mut self, changes: &mut Changes, frontend: Frontend, key: &Key, backend: Option<Backend>) {
        let by = self.wanted.entry(frontend).or_default();
        let before = by.values().next().cloned();
        match backend {
            Some(backend) => by.insert(key.clone(), backend),
            None => by.remove(key),
        };
        let now = by.values().next().cloned();
        if by.is_empty() {
            self.wanted.remove(&frontend);
        }
        changes.frontends.entry(frontend).or_insert((before, None)).1 = now;
    }

    fn note_health(&mut self, key: &Key) {
        self.health.retain(|_, health| health.service != *key);
        let Some(service) = self.services.get(key) else { return };
        let Some(port) = service.health_check_port else { return };
        let slices = self.slices_of(key);
        let local = slices.iter().flat_map(|slice| &slice.endpoints);
        let local: BTreeSet<IpAddr> =
            local.filter(|endpoint| endpoint.ready && endpoint.node == self.node.name).map(|it| it.ip).collect();
        self.health.insert(port, Health { service: key.clone(), local: local.len() });
    }

    fn slices_of(&self, key: &Key) -> Vec<&Slice> {
        self.slices_of.get(key).into_iter().flatten().filter_map(|key| self.slices.get(key)).collect()
    }

    /// All frontends of a service.
    fn frontends(&self, key: &Key) -> BTreeMap<Frontend, Backend> {
        let mut frontends = BTreeMap::new();
        let Some(service) = self.services.get(key) else { return frontends };
        let slices = self.slices_of(key);
        for port in &service.ports {
            for ipv4 in [true, false] {
                if service.cluster_ips.iter().any(|ip| ip.is_ipv4() == ipv4) {
                    let chosen = choose(&slices, port, ipv4, &self.node);
                    let name = match port.name.as_str() {
                        "" => key.to_string(),
                        port => format!("{key}:{port}"),
                    };
                    let shape = Shape { service, port, chosen: &chosen, name: name.into() };
                    self.add_port(&mut frontends, &shape, ipv4);
                }
            }
        }
        frontends
    }

    fn add_port(&self, frontends: &mut BTreeMap<Frontend, Backend>, shape: &Shape<'_>, ipv4: bool) {
        let Shape { service, port, .. } = *shape;
        let frontend = |address: IpAddr, number: u16| Frontend { address, protocol: port.protocol, port: number };
        let of_family = |ips: &[IpAddr]| ips.iter().filter(|ip| ip.is_ipv4() == ipv4).copied().collect::<Vec<_>>();
        let internal = self.internal(shape);
        for ip in of_family(&service.external_ips) {
            frontends.insert(frontend(ip, port.port), self.external(shape, Entrance::ExternalIp));
        }
        for ip in of_family(&service.load_balancer_ips) {
            let allowed = service.source_ranges.iter().filter(|range| range.is_ipv4() == ipv4).copied();
            // The kernel takes no ranges that overlap, and refuses all services for the sake of one.
            let allowed = Cidr::outermost(allowed);
            // Ranges of the other family only let nobody of this one in.
            let allowed = match (allowed.is_empty(), service.source_ranges.is_empty()) {
                (true, false) => vec![Cidr::around(ip, if ipv4 { 32 } else { 128 })],
                _ => allowed,
            };
            let backend = Backend { allowed, ..self.external(shape, Entrance::LoadBalancer) };
            frontends.insert(frontend(ip, port.port), backend);
        }
        if let Some(number) = port.node_port {
            let nobody: IpAddr = if ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            frontends.insert(frontend(nobody, number), self.external(shape, Entrance::NodePort));
        }
        // The service's own address wins over the same one from outside.
        for ip in of_family(&service.cluster_ips) {
            frontends.insert(frontend(ip, port.port), internal.clone());
        }
    }

    fn internal(&self, shape: &Shape<'_>) -> Backend {
        let masquerade = if self.masquerade_all { Masquerade::Always } else { Masquerade::Foreign };
        let scope = if shape.service.internal_local { Scope::Here } else { Scope::Anywhere };
        shape.backend(Entrance::ClusterIp, shape.way(scope, masquerade), None)
    }

    fn external(&self, shape: &Shape<'_>, entrance: Entrance) -> Backend {
        if !shape.service.external_local {
            return shape.backend(entrance, shape.way(Scope::Anywhere, Masquerade::Always), None);
        }
        // From inside the cluster an address from outside is a name for the service like any other.
        let inside = shape.way(Scope::Anywhere, Masquerade::Node);
        shape.backend(entrance, shape.way(Scope::Here, Masquerade::Never), Some(inside))
    }
}

/// One port of a service with its endpoints of one family.
struct Shape<'a> {
    service: &'a Service,
    port: &'a ServicePort,
    chosen: &'a Chosen,
    name: Arc<str>,
}

impl Shape<'_> {
    fn backend(&self, entrance: Entrance, outside: Way, inside: Option<Way>) -> Backend {
        let here = addresses(&self.chosen.here);
        let health_check_port = self.service.health_check_port;
        Backend {
            name: Arc::clone(&self.name),
            entrance,
            outside,
            inside,
            allowed: Vec::new(),
            here,
            health_check_port,
        }
    }

    fn way(&self, scope: Scope, masquerade: Masquerade) -> Way {
        let places = match scope {
            Scope::Anywhere => &self.chosen.anywhere,
            Scope::Here => &self.chosen.here,
        };
        let affinity_seconds = self.service.affinity_seconds;
        match (places.is_empty(), self.chosen.any) {
            (false, _) => Way::To { places: places.clone(), scope, masquerade, affinity_seconds },
            (true, true) => Way::Drop,
            (true, false) => Way::Refuse,
        }
    }
}

fn addresses(places: &[Place]) -> Vec<IpAddr> {
    places.iter().map(|(ip, _)| *ip).collect::<BTreeSet<_>>().into_iter().collect()
}

impl Frontend {
    /// Whether it is a port of the node.
    pub fn is_node_port(&self) -> bool {
        self.address.is_unspecified()
    }
}

impl Backend {
    /// All endpoints that it may lead to.
    pub fn places(&self) -> BTreeSet<Place> {
        let ways = [Some(&self.outside), self.inside.as_ref()];
        let lists = ways.into_iter().flatten().map(|way| match way {
            Way::To { places, .. } => places.as_slice(),
            Way::Refuse | Way::Drop => &[],
        });
        lists.flatten().copied().collect()
    }
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.frontends.is_empty()
    }

    /// Frontends of datagrams that may have led elsewhere before, with where they lead now: who talks to anybody else there must
    /// start anew.
    pub fn moved_datagrams(&self) -> BTreeMap<Place, BTreeSet<Place>> {
        let datagrams = self.frontends.iter().filter(|(frontend, _)| frontend.protocol == Protocol::Udp);
        let moved = datagrams.filter_map(|(frontend, (before, now))| {
            let now = now.as_ref().map(Backend::places).unwrap_or_default();
            // Nobody says where a frontend led of which nothing was known; packets that came before there was anybody are
            // remembered as going nowhere.
            let moved = before.as_ref().is_none_or(|before| {
                let before = before.places();
                before.is_empty() || !before.is_subset(&now)
            });
            moved.then_some(((frontend.address, frontend.port), now))
        });
        moved.collect()
    }
}

#[cfg(test)]
mod tests;
