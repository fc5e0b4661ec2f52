//! Compiles attached routes into the routing table.
//!
//! ```text
//! listeners ──address and port──> groups ──host name──> virtual hosts ──precedence──> routes
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::Key;
use apimachinery::collection::Entry;
use apimachinery::time::Time;
use http::StatusCode;

use super::super::Plan;
use super::backends::Backends;
use super::hostnames::covering;
use super::listeners::{GatewayState, ListenerState, Problem, Protocol};
use super::routes::{BackendRef, FilterSpec, Filters, Route as RouteObject, Rule};
use crate::routing::{
    Action, BackendTarget, Filter, HostPattern, ListenAddress, Listener, MirrorTarget, PathMatch, RequestMatch, Route,
    RouteOptions, TlsTermination, VirtualHost, WeightedBackend,
};

/// Precedence of a match within a host: the path, then the number of conditions, then the oldest route.
type Precedence = (u8, Reverse<usize>, bool, Reverse<usize>, Reverse<usize>, Option<Time>, Key, usize, usize);

/// The matches of a route with their precedence.
pub(super) struct CompiledRoute {
    pub key: (crate::kinds::Kind, Key),
    matches: Vec<(Precedence, Arc<Route>)>,
    /// The first reference that cannot be resolved.
    pub unresolved: Option<Problem>,
    /// The Services of its backends.
    pub services: BTreeSet<Key>,
}

/// Compiles a route. Rules with unsupported values are omitted.
pub(super) fn compile(entry: &Entry<RouteObject>, backends: &mut Backends<'_>, plan: &mut Plan) -> CompiledRoute {
    let outer = std::mem::take(&mut backends.services);
    let mut compiler = RuleCompiler { entry, backends, plan, unresolved: None };
    let mut matches = Vec::new();
    for (index, rule) in entry.value.rules.iter().enumerate() {
        let Ok(rule) = rule else { continue };
        matches.extend(compiler.rule(index, rule));
    }
    let unresolved = compiler.unresolved;
    let services = std::mem::replace(&mut backends.services, outer);
    CompiledRoute { key: (entry.value.kind, entry.key.clone()), matches, unresolved, services }
}

struct RuleCompiler<'a, 'b> {
    entry: &'a Entry<RouteObject>,
    backends: &'a mut Backends<'b>,
    plan: &'a mut Plan,
    unresolved: Option<Problem>,
}

impl RuleCompiler<'_, '_> {
    fn rule(&mut self, index: usize, rule: &Rule) -> Vec<(Precedence, Arc<Route>)> {
        let filters = self.filters(&rule.filters);
        let action = match &rule.filters.redirect {
            Some(redirect) => Action::Redirect(redirect.clone()),
            None if rule.backends.is_empty() => Action::Respond(StatusCode::INTERNAL_SERVER_ERROR),
            None => Action::Forward(rule.backends.iter().map(|backend| self.weighted(backend)).collect()),
        };
        let source = format!("{}/{}", self.entry.value.kind_name(), self.entry.key);
        let compile = |(number, matches): (usize, &RequestMatch)| {
            let route = Route {
                source: source.clone(),
                matches: matches.clone(),
                filters: filters.clone(),
                action: action.clone(),
                options: RouteOptions { cors: rule.filters.cors.clone(), ..rule.options.clone() },
            };
            (precedence(self.entry, matches, index, number), Arc::new(route))
        };
        rule.matches.iter().enumerate().map(compile).collect()
    }

    fn weighted(&mut self, backend: &BackendRef) -> WeightedBackend {
        let target = self.target(backend);
        WeightedBackend { weight: backend.weight, target, filters: self.filters(&backend.filters) }
    }

    fn target(&mut self, backend: &BackendRef) -> BackendTarget {
        let (kind, namespace) = (self.entry.value.kind, &self.entry.key.namespace);
        let (target, problem) = self.backends.resolve(kind, namespace, backend, self.plan);
        self.unresolved = self.unresolved.take().or(problem);
        target
    }

    fn filters(&mut self, filters: &Filters) -> Vec<Filter> {
        let compile = |filter: &FilterSpec| match filter {
            FilterSpec::RequestHeaders(change) => Filter::ModifyRequestHeaders(change.clone()),
            FilterSpec::ResponseHeaders(change) => Filter::ModifyResponseHeaders(change.clone()),
            FilterSpec::Rewrite { hostname, path } => {
                Filter::RewriteUrl { hostname: hostname.clone(), path: path.clone() }
            }
            FilterSpec::Mirror { backend, numerator, denominator } => Filter::Mirror(MirrorTarget {
                target: self.target(backend),
                numerator: *numerator,
                denominator: *denominator,
            }),
        };
        filters.others.iter().map(compile).collect()
    }
}

fn precedence(entry: &Entry<RouteObject>, matches: &RequestMatch, rule: usize, number: usize) -> Precedence {
    let (rank, length) = match &matches.path {
        PathMatch::Exact(_) => (0, 0),
        PathMatch::Prefix(path) if path == "/" => (3, 0),
        PathMatch::Prefix(path) => (1, path.len()),
        PathMatch::GrpcMethod(method) => (2, method.len()),
    };
    (
        rank,
        Reverse(length),
        matches.method.is_none(),
        Reverse(matches.headers.len()),
        Reverse(matches.query.len()),
        entry.value.identity.created,
        entry.key.clone(),
        rule,
        number,
    )
}

/// Listeners of one address and port, by host name.
struct Group<'a, 'b> {
    protocol: Protocol,
    slots: BTreeMap<HostPattern, Vec<&'b ListenerState<'a>>>,
}

/// Returns the listeners of the table.
pub(super) fn listeners(gateways: &[GatewayState<'_>], routes: &[CompiledRoute]) -> BTreeMap<ListenAddress, Listener> {
    let compiled: BTreeMap<_, _> = routes.iter().map(|route| (&route.key, route)).collect();
    let find = |entry: &Entry<RouteObject>| {
        compiled.get(&(entry.value.kind, entry.key.clone())).map_or(&[][..], |route| route.matches.as_slice())
    };
    let mut groups: BTreeMap<ListenAddress, Group<'_, '_>> = BTreeMap::new();
    for gateway in gateways {
        for (listener, protocol) in gateway.served() {
            for ip in &gateway.addresses {
                let address = ListenAddress { port: listener.spec.port, ip: *ip };
                let group = groups.entry(address).or_insert_with(|| Group { protocol, slots: BTreeMap::new() });
                group.slots.entry(listener.spec.hostname.clone()).or_default().push(listener);
            }
        }
    }
    let listener = |group: &Group<'_, '_>| Listener {
        tls: (group.protocol == Protocol::Https).then(|| group.tls()),
        proxy_protocol: false,
        hosts: group.virtual_hosts(&find),
    };
    groups.iter().map(|(address, group)| (*address, listener(group))).collect()
}

impl Group<'_, '_> {
    fn tls(&self) -> TlsTermination {
        let mut tls = TlsTermination { isolated: self.slots.keys().cloned().collect(), ..TlsTermination::default() };
        for (pattern, listeners) in &self.slots {
            let certificate = listeners.iter().find_map(|listener| listener.certificate.clone());
            match certificate {
                Some(certificate) if *pattern == HostPattern::Any => tls.default = Some(certificate),
                Some(certificate) => drop(tls.certificates.insert(pattern.clone(), certificate)),
                None => {}
            }
        }
        tls
    }

    /// Returns a virtual host for each listener, and for each host name of its routes. A host name belongs to the
    /// listener with the most specific one; routes of other listeners do not serve it.
    fn virtual_hosts<'r>(
        &self,
        find: &impl Fn(&Entry<RouteObject>) -> &'r [(Precedence, Arc<Route>)],
    ) -> BTreeMap<HostPattern, VirtualHost> {
        let mut hosts = BTreeMap::new();
        for (own, listeners) in &self.slots {
            let mut by_host: BTreeMap<&HostPattern, Vec<&'r (Precedence, Arc<Route>)>> = BTreeMap::new();
            by_host.entry(own).or_default();
            for attached in listeners.iter().flat_map(|listener| &listener.routes) {
                for host in &attached.hosts {
                    by_host.entry(host).or_default().extend(find(attached.route));
                }
            }
            for routes in by_host.values_mut() {
                routes.sort_by(|one, other| one.0.cmp(&other.0));
            }
            let is_own =
                |host: &HostPattern| covering(host).find(|one| self.slots.contains_key(one)).as_ref() == Some(own);
            for host in by_host.keys().filter(|host| is_own(host)) {
                let matching = covering(host).filter_map(|pattern| by_host.get(&pattern).cloned());
                let routes = matching.flatten().map(|(_, route)| Arc::clone(route)).collect();
                hosts.insert((*host).clone(), VirtualHost { routes });
            }
        }
        hosts
    }
}
