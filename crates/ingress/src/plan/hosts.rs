//! Merges the rules of all Ingresses into one route per host and path.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::sync::Arc;

use apimachinery::Key;
use http::{HeaderName, StatusCode};

use super::annotations::Canary;
use super::objects::BackendRef;
use super::{ClaimedIngress, Objects, Plan, backends};
use crate::routing::{
    Action, BackendTarget, Filter, HostPattern, PathMatch, PathRewrite, Redirect, RequestMatch, Route, RouteOptions,
    ValueMatch, VirtualHost, WeightedBackend,
};

/// Sorts paths by precedence: exact ones, then the longest prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathKey {
    Exact(String),
    Prefix(Reverse<usize>, String),
    GrpcMethod(String),
}

/// Destination of a path.
struct Destination {
    key: Key,
    source: String,
    target: BackendTarget,
    filters: Vec<Filter>,
    options: RouteOptions,
}

struct HostPath {
    main: Destination,
    canary: Option<(Canary, Destination)>,
    https_redirect: bool,
}

/// The routes of all hosts.
pub(super) struct Hosts<'a> {
    objects: &'a Objects,
    hosts: BTreeMap<HostPattern, BTreeMap<PathKey, HostPath>>,
}

impl<'a> Hosts<'a> {
    pub(super) const fn new(objects: &'a Objects) -> Self {
        Self { objects, hosts: BTreeMap::new() }
    }

    /// Adds the paths of rules. The first Ingress with a path of a host keeps it.
    pub(super) fn add_rules(&mut self, claimed: &[ClaimedIngress<'_>], plan: &mut Plan) {
        for ingress in claimed.iter().filter(|ingress| ingress.annotations.canary.is_none()) {
            for rule in &ingress.entry.value.rules {
                for (path, backend) in &rule.paths {
                    let added = self.host_path(ingress, &rule.host, path, backend, plan);
                    match self.hosts.entry(rule.host.clone()).or_default().entry(PathKey::of(path)) {
                        Slot::Vacant(slot) => drop(slot.insert(added)),
                        Slot::Occupied(taken) => report_conflict(ingress, &rule.host, path, taken.get(), plan),
                    }
                }
            }
        }
    }

    /// Adds the backends of canaries to the paths of their main Ingresses.
    pub(super) fn add_canaries(&mut self, claimed: &[ClaimedIngress<'_>], plan: &mut Plan) {
        for ingress in claimed {
            let Some(canary) = &ingress.annotations.canary else { continue };
            for rule in &ingress.entry.value.rules {
                for (path, backend) in &rule.paths {
                    let added = self.destination(ingress, path, backend, plan);
                    let paths = self.hosts.get_mut(&rule.host);
                    let main = paths.and_then(|paths| paths.get_mut(&PathKey::of(path)));
                    // A canary of another namespace must not receive requests.
                    match main.filter(|main| main.main.key.namespace == ingress.entry.key.namespace) {
                        Some(main) if main.canary.is_none() => main.canary = Some((canary.clone(), added)),
                        Some(main) => report_conflict(ingress, &rule.host, path, main, plan),
                        None => {
                            let place = place(&rule.host, path);
                            let message = format!("no other Ingress of this namespace serves {place}");
                            plan.report(ingress, "CanaryWithoutIngress", message);
                        }
                    }
                }
            }
        }
    }

    /// Adds default backends: for the other paths of the Ingress's own hosts, and for hosts without rules.
    pub(super) fn add_default_backends(&mut self, claimed: &[ClaimedIngress<'_>], plan: &mut Plan) {
        let root = PathMatch::default();
        for ingress in claimed.iter().filter(|ingress| ingress.annotations.canary.is_none()) {
            let Some(backend) = &ingress.entry.value.default_backend else { continue };
            let hosts = ingress.entry.value.rules.iter().map(|rule| rule.host.clone());
            for host in hosts.chain([HostPattern::Any]) {
                let added = self.host_path(ingress, &host, &root, backend, plan);
                match self.hosts.entry(host.clone()).or_default().entry(PathKey::of(&root)) {
                    Slot::Vacant(slot) => drop(slot.insert(added)),
                    Slot::Occupied(taken) if taken.get().main.key == ingress.entry.key => {}
                    Slot::Occupied(taken) => report_conflict(ingress, &host, &root, taken.get(), plan),
                }
            }
        }
    }

    /// Returns the routes in order of precedence. `redirect_port` is set for the HTTP listener: the port of HTTPS in
    /// redirects, if it is not the well-known one.
    pub(super) fn virtual_hosts(&self, redirect_port: Option<Option<u16>>) -> BTreeMap<HostPattern, VirtualHost> {
        let host = |(host, paths): (&HostPattern, &BTreeMap<PathKey, HostPath>)| {
            let routes = paths.iter().flat_map(|(path, served)| match redirect_port {
                Some(port) if served.https_redirect => vec![redirect(path, served, port)],
                _ => forwards(path, served),
            });
            (host.clone(), VirtualHost { routes: routes.map(Arc::new).collect() })
        };
        self.hosts.iter().map(host).collect()
    }

    fn host_path(
        &self,
        ingress: &ClaimedIngress<'_>,
        host: &HostPattern,
        path: &PathMatch,
        backend: &BackendRef,
        plan: &mut Plan,
    ) -> HostPath {
        HostPath {
            main: self.destination(ingress, path, backend, plan),
            canary: None,
            https_redirect: ingress.annotations.https_redirect && ingress.has_tls(host),
        }
    }

    fn destination(
        &self,
        ingress: &ClaimedIngress<'_>,
        path: &PathMatch,
        backend: &BackendRef,
        plan: &mut Plan,
    ) -> Destination {
        let (key, annotations) = (&ingress.entry.key, &ingress.annotations);
        if let BackendRef::Service { name, .. } = backend {
            plan.services.insert(Key::new(key.namespace.clone(), name.as_str()));
        }
        let (target, rejection) =
            backends::resolve(self.objects, &key.namespace, backend, annotations.backend_protocol);
        if let Some((reason, message)) = rejection {
            plan.report(ingress, reason, message);
        }
        let rewrite = annotations.rewrite_prefix.clone().map(|to| match path {
            PathMatch::Exact(_) | PathMatch::GrpcMethod(_) => PathRewrite::Full(to),
            PathMatch::Prefix(_) => PathRewrite::Prefix(to),
        });
        Destination {
            key: key.clone(),
            source: ingress.source(),
            target,
            filters: rewrite.map(|path| Filter::RewriteUrl { hostname: None, path: Some(path) }).into_iter().collect(),
            options: annotations.options.clone(),
        }
    }
}

impl PathKey {
    fn of(path: &PathMatch) -> Self {
        match path {
            PathMatch::Exact(path) => Self::Exact(path.clone()),
            PathMatch::Prefix(path) => Self::Prefix(Reverse(path.len()), path.clone()),
            PathMatch::GrpcMethod(method) => Self::GrpcMethod(method.clone()),
        }
    }

    fn path(&self) -> PathMatch {
        match self {
            Self::Exact(path) => PathMatch::Exact(path.clone()),
            Self::Prefix(_, path) => PathMatch::Prefix(path.clone()),
            Self::GrpcMethod(method) => PathMatch::GrpcMethod(method.clone()),
        }
    }
}

fn report_conflict(
    ingress: &ClaimedIngress<'_>,
    host: &HostPattern,
    path: &PathMatch,
    taken: &HostPath,
    plan: &mut Plan,
) {
    let by = match &taken.canary {
        Some((_, canary)) if ingress.annotations.canary.is_some() => &canary.key,
        _ => &taken.main.key,
    };
    let message = if *by == ingress.entry.key {
        format!("{} is defined more than once; the first definition is used", place(host, path))
    } else {
        format!("{} is served by the older Ingress {by}", place(host, path))
    };
    plan.report(ingress, "PathConflict", message);
}

/// Formats a host and a path for a message.
fn place(host: &HostPattern, path: &PathMatch) -> String {
    let path = match path {
        PathMatch::Exact(path) | PathMatch::Prefix(path) => path.clone(),
        PathMatch::GrpcMethod(method) => format!("/*/{method}"),
    };
    match host {
        HostPattern::Exact(name) => format!("{name}{path}"),
        HostPattern::Wildcard { suffix, .. } => format!("*.{suffix}{path}"),
        HostPattern::Any => format!("path {path} of any host"),
    }
}

fn redirect(path: &PathKey, served: &HostPath, port: Option<u16>) -> Route {
    Route {
        source: served.main.source.clone(),
        matches: RequestMatch { path: path.path(), ..RequestMatch::default() },
        filters: Vec::new(),
        action: Action::Redirect(Redirect {
            scheme: Some("https".to_owned()),
            hostname: None,
            port,
            path: None,
            status: StatusCode::PERMANENT_REDIRECT,
        }),
        options: RouteOptions::default(),
    }
}

/// Returns the routes of a path: those selected by the header of a canary first.
fn forwards(path: &PathKey, served: &HostPath) -> Vec<Route> {
    let Some((canary, destination)) = &served.canary else { return vec![served.main.route(path)] };
    let mut routes = Vec::new();
    if let Some(header) = &canary.header {
        let value = canary.header_value.as_deref();
        routes.push(destination.route(path).with_header(header, value.unwrap_or("always")));
        if value.is_none() {
            routes.push(served.main.route(path).with_header(header, "never"));
        }
    }
    let (weight, mut main) = (canary.weight.min(100), served.main.route(path));
    if weight > 0 {
        // Route and canary have different filters, so the filters are attached to the backends.
        let backends = [(&served.main, 100 - weight), (destination, weight)].map(|(to, weight)| WeightedBackend {
            weight,
            target: to.target.clone(),
            filters: to.filters.clone(),
        });
        main.filters = Vec::new();
        main.action = Action::Forward(backends.to_vec());
    }
    routes.push(main);
    routes
}

impl Destination {
    fn route(&self, path: &PathKey) -> Route {
        let backend = WeightedBackend { weight: 1, target: self.target.clone(), filters: Vec::new() };
        Route {
            source: self.source.clone(),
            matches: RequestMatch { path: path.path(), ..RequestMatch::default() },
            filters: self.filters.clone(),
            action: Action::Forward(vec![backend]),
            options: self.options.clone(),
        }
    }
}

impl Route {
    fn with_header(mut self, header: &HeaderName, value: &str) -> Self {
        self.matches.headers.push((header.clone(), ValueMatch::Exact(value.to_owned())));
        self
    }
}
