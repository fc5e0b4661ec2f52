//! Frontends and backends of services: forwarding rules as data.
//!
//! A [`Frontend`] is an address and port of a service; a node port has the unspecified address. A [`Backend`] specifies
//! the handling of new connections to it. [`Rules`] applies services and slices incrementally and returns the
//! difference of each change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use apimachinery::{Key, Value};
use netlink::{Cidr, Protocol};

use crate::endpoints::{EndpointAddr, SelectedEndpoints, choose};
use crate::service::{Node, Service, ServicePort, Slice};

/// A service address that receives connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frontend {
    /// Unspecified for a node port.
    pub address: IpAddr,
    pub protocol: Protocol,
    pub port: u16,
}

/// Handling of connections to a frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Name of the service port in upstream's form `namespace/name:port`.
    pub name: Arc<str>,
    pub entrance: FrontendKind,
    /// For external clients, or all clients if `internal` is `None`.
    pub outside: Forwarding,
    /// For this node and its pods, if different.
    pub internal: Option<Forwarding>,
    /// Allowed source ranges; empty for all.
    pub allowed: Vec<Cidr>,
    /// Local endpoints, which may connect to themselves through the service.
    pub here: Vec<IpAddr>,
    pub health_check_port: Option<u16>,
}

/// Type of a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrontendKind {
    ClusterIp,
    ExternalIp,
    LoadBalancer,
    NodePort,
}

/// Location of the endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Any node, restricted by topology hints.
    Cluster,
    /// This node only.
    Local,
}

/// Forwarding of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// To one of the endpoints.
    Endpoints {
        /// At least one endpoint.
        places: Vec<EndpointAddr>,
        scope: Scope,
        masquerade: Masquerade,
        /// Timeout of session affinity.
        affinity_seconds: Option<u32>,
    },
    /// Reject: the service has no endpoints.
    Reject,
    /// Drop: endpoints exist, but not on this node.
    Drop,
}

/// Condition for replacing the client's address by the node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Masquerade {
    /// Never, except for hairpin traffic.
    Never,
    /// If the client is not a pod; never if the pod CIDRs are unknown.
    ExternalClients,
    /// If the client is this node: other internal clients are pods.
    Node,
    /// Always, because replies must return through this node.
    Always,
}

/// Health check node port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub service: Key,
    /// Number of endpoints on this node.
    pub local: usize,
}

/// A set of changed frontends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Frontends with their old and new backend.
    pub frontends: BTreeMap<Frontend, (Option<Backend>, Option<Backend>)>,
}

/// Observed services and slices with the resulting rules.
#[derive(Debug, Default)]
pub struct Rules {
    node: Node,
    masquerade_all: bool,
    services: BTreeMap<Key, Service>,
    slices: BTreeMap<Key, Slice>,
    slices_of: BTreeMap<Key, BTreeSet<Key>>,
    /// Backends by service: if several services claim a frontend, the first by name gets it.
    desired: BTreeMap<Frontend, BTreeMap<Key, Backend>>,
    frontends_of: BTreeMap<Key, BTreeSet<Frontend>>,
    health: BTreeMap<u16, Health>,
    dirty: BTreeSet<Key>,
}

impl Rules {
    pub fn new(node: Node, masquerade_all: bool) -> Self {
        Self { node, masquerade_all, ..Self::default() }
    }

    /// Updates name and zone of the node; recomputes all services if they changed.
    pub fn set_node(&mut self, node: Node) {
        if self.node != node {
            self.node = node;
            self.dirty.extend(self.services.keys().cloned());
        }
    }

    /// Updates a service; `None` means that it was deleted.
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

    /// Updates a slice; `None` means that it was deleted.
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

    /// Returns the keys of the known services and slices.
    pub fn known(&self) -> (Vec<Key>, Vec<Key>) {
        (self.services.keys().cloned().collect(), self.slices.keys().cloned().collect())
    }

    /// Returns the changes since the last call.
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

    /// Returns the number of frontends.
    pub fn len(&self) -> usize {
        self.desired.len()
    }

    pub fn is_empty(&self) -> bool {
        self.desired.is_empty()
    }

    /// Returns the health check node ports.
    pub const fn health(&self) -> &BTreeMap<u16, Health> {
        &self.health
    }

    /// Returns all rules as a change from an empty state.
    pub fn everything(&self) -> Changes {
        let active = self.desired.iter().filter_map(|(frontend, by)| Some((*frontend, by.values().next()?.clone())));
        Changes { frontends: active.map(|(frontend, backend)| (frontend, (None, Some(backend)))).collect() }
    }

    fn want(&mut self, changes: &mut Changes, frontend: Frontend, key: &Key, backend: Option<Backend>) {
        let by = self.desired.entry(frontend).or_default();
        let before = by.values().next().cloned();
        match backend {
            Some(backend) => by.insert(key.clone(), backend),
            None => by.remove(key),
        };
        let now = by.values().next().cloned();
        if by.is_empty() {
            self.desired.remove(&frontend);
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

    /// Computes all frontends of a service.
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
            frontends.insert(frontend(ip, port.port), self.external(shape, FrontendKind::ExternalIp));
        }
        for ip in of_family(&service.load_balancer_ips) {
            let allowed = service.source_ranges.iter().filter(|range| range.is_ipv4() == ipv4).copied();
            // The kernel rejects overlapping ranges, and with them the rules of all services.
            let allowed = Cidr::outermost(allowed);
            // If all ranges are of the other family, no source of this family is allowed.
            let allowed = match (allowed.is_empty(), service.source_ranges.is_empty()) {
                (true, false) => vec![Cidr::around(ip, if ipv4 { 32 } else { 128 })],
                _ => allowed,
            };
            let backend = Backend { allowed, ..self.external(shape, FrontendKind::LoadBalancer) };
            frontends.insert(frontend(ip, port.port), backend);
        }
        if let Some(number) = port.node_port {
            let unspecified: IpAddr = if ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            frontends.insert(frontend(unspecified, number), self.external(shape, FrontendKind::NodePort));
        }
        // The cluster IP takes precedence over an equal external address.
        for ip in of_family(&service.cluster_ips) {
            frontends.insert(frontend(ip, port.port), internal.clone());
        }
    }

    fn internal(&self, shape: &Shape<'_>) -> Backend {
        let masquerade = if self.masquerade_all { Masquerade::Always } else { Masquerade::ExternalClients };
        let scope = if shape.service.internal_local { Scope::Local } else { Scope::Cluster };
        shape.backend(FrontendKind::ClusterIp, shape.way(scope, masquerade), None)
    }

    fn external(&self, shape: &Shape<'_>, entrance: FrontendKind) -> Backend {
        if !shape.service.external_local {
            return shape.backend(entrance, shape.way(Scope::Cluster, Masquerade::Always), None);
        }
        // Internal clients use an external address like the cluster IP.
        let internal = shape.way(Scope::Cluster, Masquerade::Node);
        shape.backend(entrance, shape.way(Scope::Local, Masquerade::Never), Some(internal))
    }
}

/// A service port with its endpoints of one address family.
struct Shape<'a> {
    service: &'a Service,
    port: &'a ServicePort,
    chosen: &'a SelectedEndpoints,
    name: Arc<str>,
}

impl Shape<'_> {
    fn backend(&self, entrance: FrontendKind, outside: Forwarding, internal: Option<Forwarding>) -> Backend {
        let here = addresses(&self.chosen.here);
        let health_check_port = self.service.health_check_port;
        Backend {
            name: Arc::clone(&self.name),
            entrance,
            outside,
            internal,
            allowed: Vec::new(),
            here,
            health_check_port,
        }
    }

    fn way(&self, scope: Scope, masquerade: Masquerade) -> Forwarding {
        let places = match scope {
            Scope::Cluster => &self.chosen.anywhere,
            Scope::Local => &self.chosen.here,
        };
        let affinity_seconds = self.service.affinity_seconds;
        match (places.is_empty(), self.chosen.any) {
            (false, _) => Forwarding::Endpoints { places: places.clone(), scope, masquerade, affinity_seconds },
            (true, true) => Forwarding::Drop,
            (true, false) => Forwarding::Reject,
        }
    }
}

fn addresses(places: &[EndpointAddr]) -> Vec<IpAddr> {
    places.iter().map(|(ip, _)| *ip).collect::<BTreeSet<_>>().into_iter().collect()
}

impl Frontend {
    pub fn is_node_port(&self) -> bool {
        self.address.is_unspecified()
    }
}

impl Backend {
    /// Returns all endpoints that the backend may use.
    pub fn places(&self) -> BTreeSet<EndpointAddr> {
        let ways = [Some(&self.outside), self.internal.as_ref()];
        let lists = ways.into_iter().flatten().map(|way| match way {
            Forwarding::Endpoints { places, .. } => places.as_slice(),
            Forwarding::Reject | Forwarding::Drop => &[],
        });
        lists.flatten().copied().collect()
    }
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.frontends.is_empty()
    }

    /// Returns UDP frontends whose endpoints may have changed, with their current endpoints. Conntrack entries to any
    /// other endpoint must be deleted.
    pub fn moved_datagrams(&self) -> BTreeMap<EndpointAddr, BTreeSet<EndpointAddr>> {
        let datagrams = self.frontends.iter().filter(|(frontend, _)| frontend.protocol == Protocol::Udp);
        let moved = datagrams.filter_map(|(frontend, (before, now))| {
            let now = now.as_ref().map(Backend::places).unwrap_or_default();
            // A new frontend may have had other endpoints in an earlier run. Conntrack also has untranslated entries of
            // packets that arrived before any endpoint existed.
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
