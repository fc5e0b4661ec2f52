//! Frontends and backends: where packets to an address and port go, as data.
//!
//! A [`Frontend`] is an address and port that belongs to a service; a port of every node is one with the address of nobody. A
//! [`Backend`] says what becomes of the first packet of a connection to it. [`Rules`] follows services and slices one at a time
//! and says what each change adds and takes, so that the work is that of the change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    /// From outside, or from anywhere if there is no difference.
    pub outside: Way,
    /// From this node and its pods, if that is another way.
    pub inside: Option<Way>,
    /// Who may come, if not everyone.
    pub allowed: Vec<Cidr>,
    /// Its endpoints on this node, which may come to themselves.
    pub here: Vec<IpAddr>,
}

/// A way for connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// To one of these.
    To {
        /// The endpoints; there is at least one.
        places: Vec<Place>,
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
    /// If the client is no pod.
    Foreign,
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
                    self.add_port(&mut frontends, service, port, ipv4, &chosen);
                }
            }
        }
        frontends
    }

    fn add_port(
        &self,
        frontends: &mut BTreeMap<Frontend, Backend>,
        service: &Service,
        port: &ServicePort,
        ipv4: bool,
        chosen: &Chosen,
    ) {
        let frontend = |address: IpAddr, number: u16| Frontend { address, protocol: port.protocol, port: number };
        let of_family = |ips: &[IpAddr]| ips.iter().filter(|ip| ip.is_ipv4() == ipv4).copied().collect::<Vec<_>>();
        let internal = self.internal(service, chosen);
        let external = self.external(service, chosen);
        for ip in of_family(&service.external_ips) {
            frontends.insert(frontend(ip, port.port), external.clone());
        }
        for ip in of_family(&service.load_balancer_ips) {
            let allowed: Vec<Cidr> =
                service.source_ranges.iter().filter(|range| range.is_ipv4() == ipv4).copied().collect();
            // Ranges of the other family only let nobody of this one in.
            let allowed = match (allowed.is_empty(), service.source_ranges.is_empty()) {
                (true, false) => vec![Cidr::around(ip, if ipv4 { 32 } else { 128 })],
                _ => allowed,
            };
            frontends.insert(frontend(ip, port.port), Backend { allowed, ..external.clone() });
        }
        if let Some(number) = port.node_port {
            let nobody: IpAddr = if ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            frontends.insert(frontend(nobody, number), external.clone());
        }
        // The service's own address wins over the same one from outside.
        for ip in of_family(&service.cluster_ips) {
            frontends.insert(frontend(ip, port.port), internal.clone());
        }
    }

    fn internal(&self, service: &Service, chosen: &Chosen) -> Backend {
        let masquerade = if self.masquerade_all { Masquerade::Always } else { Masquerade::Foreign };
        let places = if service.internal_local { &chosen.here } else { &chosen.anywhere };
        let outside = way(places, chosen, masquerade, service);
        Backend { outside, inside: None, allowed: Vec::new(), here: addresses(&chosen.here) }
    }

    fn external(&self, service: &Service, chosen: &Chosen) -> Backend {
        let anywhere = way(&chosen.anywhere, chosen, Masquerade::Always, service);
        if !service.external_local {
            return Backend { outside: anywhere, inside: None, allowed: Vec::new(), here: addresses(&chosen.here) };
        }
        // From inside the cluster an address from outside is a name for the service like any other.
        let outside = way(&chosen.here, chosen, Masquerade::Never, service);
        Backend { outside, inside: Some(anywhere), allowed: Vec::new(), here: addresses(&chosen.here) }
    }
}

fn addresses(places: &[Place]) -> Vec<IpAddr> {
    places.iter().map(|(ip, _)| *ip).collect::<BTreeSet<_>>().into_iter().collect()
}

fn way(places: &[Place], chosen: &Chosen, masquerade: Masquerade, service: &Service) -> Way {
    match (places.is_empty(), chosen.any) {
        (false, _) => Way::To { places: places.to_vec(), masquerade, affinity_seconds: service.affinity_seconds },
        (true, true) => Way::Drop,
        (true, false) => Way::Refuse,
    }
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

    /// Frontends of datagrams, with the endpoints that they no longer lead to: who talks there must start anew.
    pub fn stale_datagrams(&self) -> Vec<(Frontend, BTreeSet<Place>)> {
        let datagrams = self.frontends.iter().filter(|(frontend, _)| frontend.protocol == Protocol::Udp);
        let stale = datagrams.filter_map(|(frontend, (before, now))| {
            let before = before.as_ref().map(Backend::places).unwrap_or_default();
            let now = now.as_ref().map(Backend::places).unwrap_or_default();
            let gone: BTreeSet<Place> = before.difference(&now).copied().collect();
            // Packets that came before there was anybody are remembered as going nowhere.
            (!gone.is_empty() || (before.is_empty() && !now.is_empty())).then_some((*frontend, gone))
        });
        stale.collect()
    }
}

#[cfg(test)]
mod tests;
