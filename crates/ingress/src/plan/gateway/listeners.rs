//! Listeners of Gateways: their validation, conflicts and certificates.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use apimachinery::Key;
use apimachinery::collection::Entry;

use super::super::objects::TlsSecret;
use super::super::{Objects, Plan};
use super::attachment::AttachedRoute;
use super::grants;
use super::hostnames::intersection;
use super::objects::{GROUP, Gateway, Listener};
use crate::kinds::Kind;
use crate::routing::{Certificate, ListenAddress};

/// Reason and message of a condition.
pub(super) type Problem = (&'static str, String);

/// The supported protocols of listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Https,
}

/// A claimed Gateway.
pub(super) struct GatewayState<'a> {
    pub entry: &'a Entry<Gateway>,
    /// Set if the Gateway is not accepted.
    pub rejection: Option<Problem>,
    /// The addresses on which it listens; `None` means the addresses of the proxy.
    pub addresses: Vec<Option<IpAddr>>,
    /// Set if a requested address is not available.
    pub address_problem: Option<Problem>,
    pub listeners: Vec<ListenerState<'a>>,
}

pub(super) struct ListenerState<'a> {
    pub spec: &'a Listener,
    /// `None` if it is not supported.
    pub protocol: Option<Protocol>,
    /// Kinds of routes that may attach.
    pub kinds: Vec<Kind>,
    /// Set if the listener is not accepted, and not served.
    pub rejection: Option<Problem>,
    /// Whether `rejection` is a conflict with another listener of the Gateway.
    pub conflicted: bool,
    /// Set if a reference cannot be resolved.
    pub unresolved: Option<Problem>,
    /// The certificate of an HTTPS listener.
    pub certificate: Option<Arc<Certificate>>,
    /// Names of the HTTPS listeners with overlapping host names.
    pub overlapping: Vec<&'a str>,
    pub routes: Vec<AttachedRoute<'a>>,
}

impl Protocol {
    fn of(name: &str) -> Option<Self> {
        match name {
            "HTTP" => Some(Self::Http),
            "HTTPS" => Some(Self::Https),
            _ => None,
        }
    }
}

impl<'a> GatewayState<'a> {
    /// Validates a Gateway and its listeners independently of other Gateways.
    pub(super) fn new(entry: &'a Entry<Gateway>, objects: &Objects, plan: &mut Plan) -> Self {
        let gateway = &entry.value;
        let read = |listener| ListenerState::new(&entry.key, listener, objects, plan);
        let mut listeners: Vec<_> = gateway.listeners.iter().map(read).collect();
        mark_conflicts(&mut listeners);
        mark_overlaps(&mut listeners);
        if gateway.client_tls.frontend {
            for listener in listeners.iter_mut().filter(|listener| listener.protocol == Some(Protocol::Https)) {
                let message = "spec.tls.frontend is not supported: certificates of clients are not validated";
                listener.reject("UnsupportedValue", message.to_owned());
            }
        }
        Self { entry, rejection: rejection(gateway, objects), addresses: Vec::new(), address_problem: None, listeners }
    }

    /// Returns the listeners that are served, with their protocol.
    pub(super) fn served(&self) -> impl Iterator<Item = (&ListenerState<'a>, Protocol)> {
        let accepted = self.listeners.iter().filter(|_| self.rejection.is_none());
        accepted.filter_map(|listener| Some((listener, listener.served_protocol()?)))
    }

    /// Returns the accepted listeners with their protocol, including those whose references cannot be resolved yet.
    pub(super) fn intended(&self) -> impl Iterator<Item = (&ListenerState<'a>, Protocol)> {
        let accepted =
            self.listeners.iter().filter(|listener| self.rejection.is_none() && listener.rejection.is_none());
        accepted.filter_map(|listener| Some((listener, listener.protocol?)))
    }

    /// Rejects listeners whose port has another protocol at an address, for the Ingresses or an older Gateway.
    pub(super) fn reject_conflicting_ports(&mut self, taken: &mut BTreeMap<ListenAddress, Protocol>) {
        let is_rejected = self.rejection.is_some();
        for listener in self.listeners.iter_mut().filter(|_| !is_rejected) {
            let Some(protocol) = listener.served_protocol() else { continue };
            let addresses = self.addresses.iter().map(|ip| ListenAddress { port: listener.spec.port, ip: *ip });
            let other = addresses.clone().any(|address| taken.get(&address).is_some_and(|taken| *taken != protocol));
            if other {
                let port = listener.spec.port;
                let message = format!("port {port} serves another protocol for an Ingress or an older Gateway");
                listener.reject("PortUnavailable", message);
            } else {
                taken.extend(addresses.map(|address| (address, protocol)));
            }
        }
    }
}

impl<'a> ListenerState<'a> {
    fn new(gateway: &Key, spec: &'a Listener, objects: &Objects, plan: &mut Plan) -> Self {
        let protocol = Protocol::of(&spec.protocol);
        let mut state = Self {
            spec,
            protocol,
            kinds: Vec::new(),
            rejection: None,
            conflicted: false,
            unresolved: None,
            certificate: None,
            overlapping: Vec::new(),
            routes: Vec::new(),
        };
        if protocol.is_none() {
            let message = format!("protocol {} is not supported: only HTTP and HTTPS are", spec.protocol);
            state.reject("UnsupportedProtocol", message);
            return state;
        }
        let (kinds, unknown) = kinds(spec);
        state.kinds = kinds;
        if let Some(unknown) = unknown {
            state.unresolved = Some(("InvalidRouteKinds", format!("routes of kind {unknown} are not supported")));
        }
        if protocol == Some(Protocol::Https) {
            match certificate(gateway, spec, objects, plan) {
                Ok(certificate) => state.certificate = Some(certificate),
                Err(problem) => state.unresolved = Some(problem),
            }
        }
        state
    }

    pub(super) fn reject(&mut self, reason: &'static str, message: String) {
        self.rejection.get_or_insert((reason, message));
    }

    /// Returns the protocol if the listener is served.
    fn served_protocol(&self) -> Option<Protocol> {
        let protocol = self.protocol.filter(|_| self.rejection.is_none())?;
        let is_complete = protocol == Protocol::Http || self.certificate.is_some();
        is_complete.then_some(protocol).filter(|_| !self.kinds.is_empty())
    }

    pub(super) fn is_served(&self) -> bool {
        self.served_protocol().is_some()
    }
}

/// Returns the reason why a Gateway is not accepted, apart from its listeners.
fn rejection(gateway: &Gateway, objects: &Objects) -> Option<Problem> {
    let invalid = |message: &str| Some(("InvalidParameters", message.to_owned()));
    let class = objects.gateway.classes.get(&Key::cluster(gateway.class.as_str()));
    if class.is_some_and(|class| class.has_parameters) {
        return invalid("the GatewayClass has a parametersRef, which is not supported");
    }
    if gateway.has_parameters {
        return invalid("spec.infrastructure.parametersRef is not supported");
    }
    if gateway.client_tls.backend {
        return Some(("UnsupportedValue", "spec.tls.backend is not supported".to_owned()));
    }
    None
}

/// Returns the supported kinds of routes that may attach, and the first other kind.
fn kinds(spec: &Listener) -> (Vec<Kind>, Option<&str>) {
    let supported = [Kind::HttpRoute, Kind::GrpcRoute];
    if spec.kinds.is_empty() {
        return (supported.to_vec(), None);
    }
    let find = |(group, name): &(String, String)| {
        supported.into_iter().find(|kind| group == GROUP && kind.resource().kind == *name.as_str())
    };
    let unknown = spec.kinds.iter().find(|one| find(one).is_none()).map(|(_, name)| name.as_str());
    let mut kinds: Vec<Kind> = spec.kinds.iter().filter_map(find).collect();
    kinds.sort_unstable();
    kinds.dedup();
    (kinds, unknown)
}

/// Returns the first valid certificate, or the first problem.
fn certificate(
    gateway: &Key,
    spec: &Listener,
    objects: &Objects,
    plan: &mut Plan,
) -> Result<Arc<Certificate>, Problem> {
    let mut problem = ("InvalidCertificateRef", "the listener has no tls.certificateRefs".to_owned());
    for (index, reference) in spec.certificates.iter().enumerate() {
        let invalid = |message: String| ("InvalidCertificateRef", message);
        let key = reference.key(&gateway.namespace);
        let found = if !reference.is("", "Secret") {
            Err(invalid(format!("{} {} is not a Secret", reference.kind, reference.name)))
        } else if !grants::allows(objects, &Kind::Gateway.resource().kind, &gateway.namespace, "Secret", &key) {
            Err(("RefNotPermitted", format!("no ReferenceGrant of namespace {} allows Secret {key}", key.namespace)))
        } else {
            plan.secrets.insert(key.clone());
            match objects.secrets.get(&key) {
                Some(TlsSecret { certificate: Ok(certificate), .. }) => Ok(Arc::clone(certificate)),
                Some(TlsSecret { certificate: Err(error), .. }) => Err(invalid(format!("Secret {key}: {error}"))),
                None => Err(invalid(format!("Secret {key} of type kubernetes.io/tls does not exist"))),
            }
        };
        match found {
            Ok(certificate) => return Ok(certificate),
            Err(found) if index == 0 => problem = found,
            Err(_) => {}
        }
    }
    Err(problem)
}

/// Marks listeners with the same port and different protocols, or with the same port and host name.
fn mark_conflicts(listeners: &mut [ListenerState<'_>]) {
    let reason = |one: &ListenerState<'_>, other: &ListenerState<'_>| {
        let same_port = one.spec.port == other.spec.port && one.protocol.is_some() && other.protocol.is_some();
        match () {
            () if !same_port => None,
            () if one.protocol != other.protocol => Some("ProtocolConflict"),
            () if one.spec.hostname == other.spec.hostname => Some("HostnameConflict"),
            () => None,
        }
    };
    let conflicts: Vec<_> = (0..listeners.len())
        .map(|index| {
            let mut others = listeners.iter().enumerate().filter(|(other, _)| *other != index);
            others.find_map(|(_, other)| {
                let reason = reason(&listeners[index], other)?;
                Some((reason, format!("it conflicts with listener {}", other.spec.name)))
            })
        })
        .collect();
    for (listener, conflict) in listeners.iter_mut().zip(conflicts) {
        if let Some((reason, message)) = conflict {
            listener.reject(reason, message);
            listener.conflicted = true;
        }
    }
}

/// Records HTTPS listeners of the same port whose host names overlap.
fn mark_overlaps<'a>(listeners: &mut [ListenerState<'a>]) {
    let is_https = |listener: &&ListenerState<'_>| listener.protocol == Some(Protocol::Https);
    let specs: Vec<&'a Listener> = listeners.iter().filter(is_https).map(|listener| listener.spec).collect();
    for listener in listeners.iter_mut().filter(|listener| listener.protocol == Some(Protocol::Https)) {
        let own = listener.spec;
        let overlaps = |other: &&&'a Listener| {
            other.name != own.name && other.port == own.port && intersection(&other.hostname, &own.hostname).is_some()
        };
        listener.overlapping = specs.iter().filter(overlaps).map(|other| other.name.as_str()).collect();
    }
}
