//! The planner: a pure function from API objects to a routing table, statuses and Events.
//!
//! ```text
//! Ingress ──class──> claimed, oldest first ──> one route per host and path ──> RoutingTable
//!                            │                        │
//!                            └──> statuses            └──> findings: Events about rejected or ignored configuration
//! ```

pub mod acme;
pub mod annotations;
mod backends;
pub mod gateway;
mod hosts;
pub mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use apimachinery::collection::{Collection, Entry, IndexBy};
use apimachinery::time::Time;
use apimachinery::{Key, Str, Value, value};

use crate::kinds::Kind;
use crate::routing::{Certificate, HostPattern, ListenAddress, Listener, RoutingTable, TlsTermination};
use annotations::Annotations;
use hosts::Hosts;
use objects::{ClassName, Ingress, IngressClass, Service, Slice, TlsSecret};

/// Name of the IngressClass that the add-on creates.
pub const CLASS: &str = "knarr";
/// `spec.controller` of the IngressClasses of this controller.
pub const CONTROLLER: &str = "knarr.io/ingress-controller";
/// Index of EndpointSlices by Service.
const BY_SERVICE: &str = "service";
/// Maximum findings about one Ingress.
const FINDINGS_MAX: usize = 20;
/// Maximum findings of a plan.
const EVENTS_MAX: usize = 1000;

/// Inputs of the planner other than objects.
#[derive(Clone, Debug)]
pub struct Settings {
    pub http_port: u16,
    pub https_port: u16,
    /// The addresses for the status of Ingresses and Gateways. The status of Ingresses is not written if there are
    /// none.
    pub addresses: Vec<IpAddr>,
    /// Further addresses of this host, for Gateways that would conflict with older ones.
    pub gateway_addresses: Vec<IpAddr>,
    /// The certificate for hosts without one.
    pub default_certificate: Option<Arc<Certificate>>,
    /// Whether there is an ACME server.
    pub acme: bool,
    /// Requires the PROXY protocol on all listeners.
    pub proxy_protocol: bool,
}

/// A consistent observation.
#[derive(Debug)]
pub struct Objects {
    pub ingresses: Collection<Ingress>,
    pub classes: Collection<IngressClass>,
    pub services: Collection<Service>,
    /// With the index of [`slices_by_service`].
    pub slices: Collection<Slice>,
    pub secrets: Collection<TlsSecret>,
    pub gateway: gateway::Objects,
    /// Listeners that could not be opened, with the reason.
    pub unavailable: BTreeMap<ListenAddress, String>,
    pub acme: acme::Progress,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub table: RoutingTable,
    /// Statuses that differ from the observed ones.
    pub statuses: Vec<StatusWrite>,
    pub events: Vec<Finding>,
    /// The claimed Ingresses.
    pub claimed: Vec<Subject>,
    /// The Services that the table depends on. A change of any other Service does not change the plan.
    pub services: BTreeSet<Key>,
    /// The Secrets that the table depends on.
    pub secrets: BTreeSet<Key>,
    /// The ConfigMaps that the table depends on.
    pub config_maps: BTreeSet<Key>,
    /// Certificates to obtain.
    pub orders: Vec<acme::Order>,
    /// The time at which the plan changes without a change of an object.
    pub wake_at: Option<Time>,
}

/// An observed object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub kind: Kind,
    pub key: Key,
    pub uid: Str,
    pub revision: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    pub subject: Subject,
    /// The fields of `status` to replace.
    pub status: Value,
}

/// A Warning Event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub subject: Subject,
    pub reason: &'static str,
    pub message: String,
}

/// A claimed Ingress with its annotations.
struct ClaimedIngress<'a> {
    entry: &'a Entry<Ingress>,
    annotations: Annotations,
}

/// Returns the index that [`Objects::slices`] needs.
pub fn slices_by_service() -> Vec<IndexBy<Slice>> {
    vec![IndexBy::new(BY_SERVICE, |_, slice: &Slice| vec![slice.service.to_string().into()])]
}

/// Whether this controller implements the Ingress. An Ingress without a class belongs to no controller: admission sets
/// the default class.
pub fn is_claimed(ingress: &Ingress, classes: &Collection<IngressClass>) -> bool {
    let is_ours = |name: &str| classes.get(&Key::cluster(name)).is_some_and(|class| class.controller == CONTROLLER);
    match &ingress.class {
        ClassName::Spec(name) => is_ours(name),
        ClassName::Annotation(name) => name == CLASS || is_ours(name),
        ClassName::Absent => false,
    }
}

/// Computes the routing table and everything to report. `now` is the time of conditions that change.
pub fn plan(settings: &Settings, objects: &Objects, now: Time) -> Plan {
    let mut plan = Plan::default();
    plan_ingresses(settings, objects, now, &mut plan);
    gateway::plan(settings, objects, now, &mut plan);
    for listener in plan.table.listeners.values_mut() {
        listener.proxy_protocol = settings.proxy_protocol;
    }
    plan
}

fn plan_ingresses(settings: &Settings, objects: &Objects, now: Time, plan: &mut Plan) {
    let claimed = claimed(objects, plan);
    if claimed.is_empty() {
        return;
    }
    let mut hosts = Hosts::new(objects);
    hosts.add_rules(&claimed, plan);
    hosts.add_canaries(&claimed, plan);
    hosts.add_default_backends(&claimed, plan);
    let tls = certificates(settings, objects, &claimed, plan);
    let redirect_port = (settings.https_port != 443).then_some(settings.https_port);
    let mut http = Listener { hosts: hosts.virtual_hosts(Some(redirect_port)), ..Listener::default() };
    acme::add_orders(settings, objects, &claimed, now, plan);
    acme::add_challenges(&objects.acme, &mut http.hosts);
    let https = Listener { tls: Some(tls), hosts: hosts.virtual_hosts(None), ..Listener::default() };
    plan.table = RoutingTable {
        listeners: BTreeMap::from([(settings.http_port.into(), http), (settings.https_port.into(), https)]),
    };
    plan.statuses = statuses(settings, &claimed);
    report_conflicting_ports(settings, objects, &claimed, plan);
    report_unavailable(objects, plan);
}

/// Returns the Ingresses of this controller, oldest first.
fn claimed<'a>(objects: &'a Objects, plan: &mut Plan) -> Vec<ClaimedIngress<'a>> {
    let mut entries: Vec<&Arc<Entry<Ingress>>> =
        objects.ingresses.iter().filter(|entry| is_claimed(&entry.value, &objects.classes)).collect();
    entries.sort_by(|one, other| (one.value.created, &one.key).cmp(&(other.value.created, &other.key)));
    let claim = |entry: &'a Arc<Entry<Ingress>>| {
        let (annotations, findings) = Annotations::read(&entry.value.annotations);
        let claimed = ClaimedIngress { entry, annotations };
        plan.claimed.push(claimed.subject());
        for finding in findings {
            plan.report(&claimed, "InvalidAnnotation", finding);
        }
        claimed
    };
    entries.into_iter().map(claim).collect()
}

/// Returns the certificates by host. If several Ingresses have one for a host, the oldest Ingress wins.
fn certificates(
    settings: &Settings,
    objects: &Objects,
    claimed: &[ClaimedIngress<'_>],
    plan: &mut Plan,
) -> TlsTermination {
    let mut tls = TlsTermination::default();
    for ingress in claimed {
        for wanted in ingress.entry.value.tls.iter().filter(|wanted| !wanted.secret.is_empty()) {
            let key = Key::new(ingress.entry.key.namespace.clone(), wanted.secret.as_str());
            plan.secrets.insert(key.clone());
            let certificate = match objects.secrets.get(&key) {
                Some(TlsSecret { certificate: Ok(certificate), .. }) => certificate,
                Some(TlsSecret { certificate: Err(error), .. }) => {
                    plan.report(ingress, "InvalidCertificate", format!("Secret {}: {error}", wanted.secret));
                    continue;
                }
                None if ingress.annotations.acme && settings.acme => continue,
                None => {
                    let message = format!("Secret {} of type kubernetes.io/tls does not exist", wanted.secret);
                    plan.report(ingress, "CertificateNotFound", message);
                    continue;
                }
            };
            let rules = ingress.entry.value.rules.iter().map(|rule| &rule.host);
            let hosts: Vec<&HostPattern> =
                if wanted.hosts.is_empty() { rules.collect() } else { wanted.hosts.iter().collect() };
            for host in hosts {
                if *host != HostPattern::Any {
                    tls.certificates.entry(host.clone()).or_insert_with(|| Arc::clone(certificate));
                } else if tls.default.is_none() {
                    tls.default = Some(Arc::clone(certificate));
                }
            }
        }
    }
    tls.default = tls.default.or_else(|| settings.default_certificate.clone());
    tls
}

fn statuses(settings: &Settings, claimed: &[ClaimedIngress<'_>]) -> Vec<StatusWrite> {
    if settings.addresses.is_empty() {
        return Vec::new();
    }
    let desired: Vec<Value> = settings.addresses.iter().map(|address| value!({"ip": (address.to_string())})).collect();
    let different = claimed.iter().filter(|ingress| ingress.entry.value.published != desired);
    different
        .map(|ingress| StatusWrite {
            subject: ingress.subject(),
            status: value!({"loadBalancer": {"ingress": (Value::Array(desired.clone()))}}),
        })
        .collect()
}

/// Reports the ports of Ingresses that the proxy cannot listen on.
fn report_unavailable(objects: &Objects, plan: &mut Plan) {
    let failed = objects.unavailable.iter().filter(|(address, _)| plan.table.listeners.contains_key(address));
    let messages = failed
        .map(|(address, error)| format!("the ingress controller cannot listen on port {}: {error}", address.port));
    for message in messages.collect::<Vec<_>>() {
        for subject in plan.claimed.iter().take(EVENTS_MAX) {
            plan.events.push(Finding { subject: subject.clone(), reason: "ListenFailed", message: message.clone() });
        }
    }
}

/// Reports LoadBalancer Services that receive the connections to a port of this controller: the rules of kube-proxy
/// take precedence over a listening process.
fn report_conflicting_ports(settings: &Settings, objects: &Objects, claimed: &[ClaimedIngress<'_>], plan: &mut Plan) {
    let ports = [settings.http_port, settings.https_port];
    for service in objects.services.iter() {
        if !service.value.load_balancer_ips.iter().any(|ip| settings.addresses.contains(ip)) {
            continue;
        }
        for port in service.value.ports.iter().filter(|port| ports.contains(&port.port)) {
            for ingress in claimed {
                let message = format!(
                    "the LoadBalancer Service {} receives the connections to port {} of the ingress controller",
                    service.key, port.port
                );
                plan.report(ingress, "PortInUse", message);
            }
        }
    }
}

impl Plan {
    fn report(&mut self, ingress: &ClaimedIngress<'_>, reason: &'static str, message: String) {
        if self.events.len() >= EVENTS_MAX {
            return;
        }
        let subject = ingress.subject();
        if self.events.iter().filter(|event| event.subject == subject).count() < FINDINGS_MAX {
            self.events.push(Finding { subject, reason, message });
        }
    }
}

impl Subject {
    fn new<T>(kind: Kind, entry: &Entry<T>, uid: &Str) -> Self {
        Self { kind, key: entry.key.clone(), uid: uid.clone(), revision: entry.revision }
    }
}

impl ClaimedIngress<'_> {
    fn subject(&self) -> Subject {
        Subject::new(Kind::Ingress, self.entry, &self.entry.value.uid)
    }

    /// `Ingress/namespace/name`.
    fn source(&self) -> String {
        format!("Ingress/{}", self.entry.key)
    }

    /// Whether `spec.tls` covers a host of the Ingress.
    fn has_tls(&self, host: &HostPattern) -> bool {
        self.entry.value.tls.iter().any(|tls| tls.hosts.is_empty() || tls.hosts.iter().any(|tls| covers(tls, host)))
    }
}

/// Whether `pattern` includes every name of `host`.
fn covers(pattern: &HostPattern, host: &HostPattern) -> bool {
    match (pattern, host) {
        (HostPattern::Wildcard { suffix, .. }, HostPattern::Exact(name)) => {
            name.split_once('.').is_some_and(|(_, rest)| rest == suffix)
        }
        _ => pattern == host,
    }
}

#[cfg(test)]
mod tests;
