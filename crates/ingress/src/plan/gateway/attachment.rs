//! Attaches routes to listeners.

use apimachinery::Key;
use apimachinery::collection::Entry;

use super::super::Objects;
use super::hostnames::intersection;
use super::listeners::{GatewayState, ListenerState, Problem};
use super::objects::{AllowedNamespaces, GROUP};
use super::routes::{ParentRef, Route};
use crate::routing::HostPattern;

/// A route that is attached to a listener.
#[derive(Clone)]
pub(super) struct AttachedRoute<'a> {
    pub route: &'a Entry<Route>,
    /// The host names that route and listener have in common.
    pub hosts: Vec<HostPattern>,
}

/// The result for one reference to a parent.
pub(super) struct Parent<'a> {
    pub reference: &'a ParentRef,
    pub gateway: Key,
    /// Set if the route is not accepted.
    pub rejection: Option<Problem>,
}

/// Attaches a route to all listeners that its references select and that allow it. Call it for the oldest route first.
/// References to other parents than Gateways of this controller are not part of the result.
pub(super) fn attach<'a>(
    objects: &Objects,
    gateways: &mut [GatewayState<'a>],
    route: &'a Entry<Route>,
) -> Vec<Parent<'a>> {
    let mut parents = Vec::new();
    for reference in &route.value.parents {
        if !reference.target.is(GROUP, "Gateway") {
            continue;
        }
        let key = reference.target.key(&route.key.namespace);
        let Some(gateway) = gateways.iter_mut().find(|gateway| gateway.entry.key == key) else { continue };
        let rejection = unsupported(&route.value).or_else(|| attach_to(objects, gateway, route, reference).err());
        parents.push(Parent { reference, gateway: key, rejection });
    }
    parents
}

/// Returns the reason why no rule of the route can be served.
fn unsupported(route: &Route) -> Option<Problem> {
    let mut problems = route.rules.iter().map(|rule| rule.as_ref().err());
    let first = route.rules.iter().find_map(|rule| rule.as_ref().err())?;
    problems.all(|problem| problem.is_some()).then(|| ("UnsupportedValue", format!("not supported: {first}")))
}

fn attach_to<'a>(
    objects: &Objects,
    gateway: &mut GatewayState<'a>,
    route: &'a Entry<Route>,
    reference: &ParentRef,
) -> Result<(), Problem> {
    let namespace = gateway.entry.key.namespace.clone();
    let selects = |listener: &ListenerState<'_>| {
        reference.section.as_ref().is_none_or(|name| *name == listener.spec.name)
            && reference.port.is_none_or(|port| port == listener.spec.port)
    };
    let mut problem = ("NoMatchingParent", "the Gateway has no listener of this name and port".to_owned());
    let mut is_attached = false;
    for listener in gateway.listeners.iter_mut().filter(|listener| selects(listener)) {
        match hosts(objects, &namespace, listener, route) {
            Ok(hosts) => {
                is_attached = true;
                // Other references of the route may select the same listener.
                if listener.routes.last().is_none_or(|last| !std::ptr::eq(last.route, route)) {
                    listener.routes.push(AttachedRoute { route, hosts });
                }
            }
            // The problem of the listener on which the route passed most checks.
            Err(found) if progress(found.0) > progress(problem.0) => problem = found,
            Err(_) => {}
        }
    }
    if is_attached { Ok(()) } else { Err(problem) }
}

/// Returns the host names that a route serves on a listener.
fn hosts(
    objects: &Objects,
    gateway_namespace: &str,
    listener: &ListenerState<'_>,
    route: &Entry<Route>,
) -> Result<Vec<HostPattern>, Problem> {
    let name = &listener.spec.name;
    if !listener.kinds.contains(&route.value.kind) {
        let message = format!("listener {name} does not allow routes of kind {}", route.value.kind_name());
        return Err(("NotAllowedByListeners", message));
    }
    if !allows_namespace(objects, gateway_namespace, &listener.spec.namespaces, &route.key.namespace) {
        let message = format!("listener {name} does not allow routes of namespace {}", route.key.namespace);
        return Err(("NotAllowedByListeners", message));
    }
    let own = &listener.spec.hostname;
    let hosts: Vec<HostPattern> = match route.value.hostnames.as_slice() {
        [] => vec![own.clone()],
        hostnames => hostnames.iter().filter_map(|hostname| intersection(own, hostname)).cloned().collect(),
    };
    if hosts.is_empty() {
        let message = format!("listener {name} serves none of the host names of the route");
        return Err(("NoMatchingListenerHostname", message));
    }
    let is_other = |attached: &&AttachedRoute<'_>| attached.route.value.kind != route.value.kind;
    let overlaps = |attached: &AttachedRoute<'_>| {
        attached.hosts.iter().any(|one| hosts.iter().any(|other| intersection(one, other).is_some()))
    };
    if let Some(other) = listener.routes.iter().filter(is_other).find(|attached| overlaps(attached)) {
        let message = format!(
            "listener {name} has the older {} {} with the same host name",
            other.route.value.kind_name(),
            other.route.key
        );
        return Err(("HostnameConflict", message));
    }
    Ok(hosts)
}

fn allows_namespace(objects: &Objects, own: &str, allowed: &AllowedNamespaces, namespace: &str) -> bool {
    match allowed {
        AllowedNamespaces::All => true,
        AllowedNamespaces::Same => own == namespace,
        AllowedNamespaces::Selector(selector) => {
            let found = objects.gateway.namespaces.get(&Key::cluster(namespace));
            found.is_some_and(|found| selector.matches_labels(Some(&found.labels)))
        }
    }
}

/// Sorts reasons by the number of checks that passed before.
fn progress(reason: &str) -> u8 {
    match reason {
        "NoMatchingParent" => 0,
        "NotAllowedByListeners" => 1,
        "NoMatchingListenerHostname" => 2,
        _ => 3,
    }
}
