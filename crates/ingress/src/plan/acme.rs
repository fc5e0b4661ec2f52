//! Certificates by ACME: the Secrets to issue, and the routes that serve challenges.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::Key;
use apimachinery::time::Time;

use super::gateway::hostnames::covers;
use super::objects::{AcmeCertificate, TlsHosts, TlsSecret};
use super::{ClaimedIngress, Objects, Plan, Settings};
use crate::routing::{Action, HostPattern, PathMatch, RequestMatch, Route, RouteOptions, VirtualHost};

/// Path of the response to an HTTP-01 challenge (RFC 8555, section 8.3), before the token.
const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/";

/// A certificate to obtain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub secret: Key,
    pub hosts: BTreeSet<String>,
    /// The version of the Secret to renew; `None` if it does not exist.
    pub replaces: Option<u64>,
}

/// Orders in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Responses to challenges by host and token.
    pub challenges: BTreeMap<(String, String), String>,
    /// The error of the last order of each Secret.
    pub failures: BTreeMap<Key, String>,
}

/// Adds the orders of Ingresses with the annotation, and the time of the next renewal.
pub(super) fn add_orders(
    settings: &Settings,
    objects: &Objects,
    claimed: &[ClaimedIngress<'_>],
    now: Time,
    plan: &mut Plan,
) {
    for ingress in claimed.iter().filter(|ingress| ingress.annotations.acme) {
        if !settings.acme {
            let message = "the ingress controller has no ACME server; start it with --acme-directory".to_owned();
            plan.report(ingress, "AcmeNotConfigured", message);
            continue;
        }
        for wanted in ingress.entry.value.tls.iter().filter(|wanted| !wanted.secret.is_empty()) {
            let secret = Key::new(ingress.entry.key.namespace.clone(), wanted.secret.as_str());
            if let Some(failure) = objects.acme.failures.get(&secret) {
                plan.report(ingress, "CertificateNotIssued", format!("Secret {}: {failure}", wanted.secret));
            }
            match order(objects, claimed, ingress, wanted, secret, now) {
                Ok(OrderTime::Now(order)) if plan.orders.iter().all(|other| other.secret != order.secret) => {
                    plan.orders.push(order);
                }
                Ok(OrderTime::Now(_)) => {}
                Ok(OrderTime::At(time)) => plan.wake_at = plan.wake_at.into_iter().chain([time]).min(),
                Err(message) => plan.report(ingress, "AcmeRefused", message),
            }
        }
    }
}

enum OrderTime {
    Now(Order),
    At(Time),
}

/// Returns the order for one Secret. Secrets that ACME did not issue are never replaced.
fn order(
    objects: &Objects,
    claimed: &[ClaimedIngress<'_>],
    ingress: &ClaimedIngress<'_>,
    wanted: &TlsHosts,
    secret: Key,
    now: Time,
) -> Result<OrderTime, String> {
    let own = ingress.entry.value.rules.iter().map(|rule| &rule.host);
    let served: BTreeSet<&HostPattern> = own.clone().collect();
    let listed: Vec<&HostPattern> = if wanted.hosts.is_empty() { own.collect() } else { wanted.hosts.iter().collect() };
    let mut hosts = BTreeSet::new();
    for host in listed {
        let HostPattern::Exact(name) = host else {
            return Err(format!("Secret {}: HTTP-01 needs host names without wildcards", wanted.secret));
        };
        if !served.contains(host) {
            return Err(format!("Secret {}: the Ingress has no rule for {name}", wanted.secret));
        }
        if let Some(owner) = foreign_owner(objects, claimed, &secret.namespace, host) {
            return Err(format!("Secret {}: {name} belongs to the older {owner} of another namespace", wanted.secret));
        }
        hosts.insert(name.clone());
    }
    if hosts.is_empty() {
        return Err(format!("Secret {}: the Ingress has no host", wanted.secret));
    }
    let Some(existing) = objects.secrets.entry(&secret) else {
        return Ok(OrderTime::Now(Order { secret, hosts, replaces: None }));
    };
    let TlsSecret { issued: Some(AcmeCertificate { names, renew_at }), .. } = &existing.value else {
        return Err(format!("Secret {} was not issued by ACME and is kept", wanted.secret));
    };
    if *renew_at > now && names.is_superset(&hosts) {
        return Ok(OrderTime::At(*renew_at));
    }
    Ok(OrderTime::Now(Order { secret, hosts, replaces: Some(existing.revision) }))
}

/// Returns the oldest object that names the host, if it is of another namespace. Namespaces share the hosts: without
/// this check, a tenant that may create Ingresses would get a certificate, with its key, for the host of another
/// tenant.
fn foreign_owner(
    objects: &Objects,
    claimed: &[ClaimedIngress<'_>],
    namespace: &str,
    host: &HostPattern,
) -> Option<String> {
    let names = |pattern: &HostPattern| *pattern != HostPattern::Any && covers(pattern, host);
    let of_rules = claimed.iter().map(|ingress| ingress.entry);
    let of_rules = of_rules.filter(|entry| entry.value.rules.iter().any(|rule| names(&rule.host)));
    let gateways = objects.gateway.gateways.iter();
    let gateways = gateways.filter(|entry| entry.value.listeners.iter().any(|listener| names(&listener.hostname)));
    let routes = objects.gateway.http_routes.iter().chain(objects.gateway.grpc_routes.iter());
    let routes = routes.filter(|entry| entry.value.hostnames.iter().any(names));
    let owners = of_rules
        .map(|entry| (entry.value.created, &entry.key, "Ingress"))
        .chain(gateways.map(|entry| (entry.value.identity.created, &entry.key, "Gateway")))
        .chain(routes.map(|entry| (entry.value.identity.created, &entry.key, "route")));
    let (_, oldest, kind) = owners.min()?;
    (*oldest.namespace != *namespace).then(|| format!("{kind} {oldest}"))
}

/// Inserts the responses to challenges before the routes of their hosts.
pub(super) fn add_challenges(progress: &Progress, hosts: &mut BTreeMap<HostPattern, VirtualHost>) {
    for ((host, token), answer) in &progress.challenges {
        // Hosts without rules have no orders.
        let Some(virtual_host) = hosts.get_mut(&HostPattern::Exact(host.clone())) else { continue };
        let route = Route {
            source: format!("Acme/{host}/{token}"),
            matches: RequestMatch {
                path: PathMatch::Exact(format!("{CHALLENGE_PATH}{token}")),
                ..RequestMatch::default()
            },
            filters: Vec::new(),
            action: Action::Answer(answer.clone()),
            options: RouteOptions::default(),
        };
        virtual_host.routes.insert(0, Arc::new(route));
    }
}
