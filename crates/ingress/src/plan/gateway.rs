//! The planner of the Gateway API: from its objects to listeners of the routing table, and to statuses.
//!
//! ```text
//! Gateway ──class──> listeners ──addresses──> routes attach, oldest first ──> RoutingTable
//!                                                      │
//!                                                      └──> statuses of classes, Gateways, routes and policies
//! ```
//!
//! An Ingress and a Gateway may share a port. The most specific host name selects the virtual host; in it, the routes
//! of Gateways precede those of Ingresses.

mod addresses;
mod attachment;
mod backends;
mod conditions;
mod grants;
pub(super) mod hostnames;
mod listeners;
pub mod objects;
mod policies;
pub mod routes;
mod status;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::Key;
use apimachinery::collection::{Collection, Entry};
use apimachinery::time::Time;

use super::{Plan, Settings};
use crate::routing::{ListenAddress, Listener, RoutingTable};
use attachment::Parent;
use backends::Backends;
use listeners::{GatewayState, Protocol};
use objects::{BackendTlsPolicy, CaBundle, Gateway, GatewayClass, Namespace, ReferenceGrant};
use policies::Policies;
use routes::Route;
use table::CompiledRoute;

/// `spec.controllerName` of the GatewayClasses of this controller.
pub const CONTROLLER: &str = "knarr.io/gateway-controller";

/// `status.supportedFeatures` of a GatewayClass, sorted.
pub const FEATURES: &[&str] = &[
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayPort8080",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteCORS",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteSchemeRedirect",
    "ReferenceGrant",
];

/// The observed objects of the Gateway API, empty in a cluster without it.
#[derive(Debug)]
pub struct Objects {
    pub classes: Collection<GatewayClass>,
    pub gateways: Collection<Gateway>,
    pub http_routes: Collection<Route>,
    pub grpc_routes: Collection<Route>,
    pub grants: Collection<ReferenceGrant>,
    pub policies: Collection<BackendTlsPolicy>,
    pub ca_bundles: Collection<CaBundle>,
    pub namespaces: Collection<Namespace>,
    /// The release of the installed CRDs.
    pub version: Option<String>,
}

impl Default for Objects {
    fn default() -> Self {
        Self {
            classes: Collection::new(Vec::new()),
            gateways: Collection::new(Vec::new()),
            http_routes: Collection::new(Vec::new()),
            grpc_routes: Collection::new(Vec::new()),
            grants: Collection::new(Vec::new()),
            policies: Collection::new(Vec::new()),
            ca_bundles: Collection::new(Vec::new()),
            namespaces: Collection::new(Vec::new()),
            version: None,
        }
    }
}

/// Whether this controller implements the Gateway.
pub fn is_claimed(gateway: &Gateway, classes: &Collection<GatewayClass>) -> bool {
    classes.get(&Key::cluster(gateway.class.as_str())).is_some_and(|class| class.controller == CONTROLLER)
}

/// Adds the listeners and the statuses of the Gateway API to a plan. Listeners of Ingresses are in its table already.
pub(super) fn plan(settings: &Settings, objects: &super::Objects, now: Time, plan: &mut Plan) {
    let gateway_objects = &objects.gateway;
    for entry in gateway_objects.classes.iter().filter(|entry| entry.value.controller == CONTROLLER) {
        status::report_class(entry, gateway_objects.version.as_deref(), now, plan);
    }
    let mut gateways = gateways(settings, objects, plan);
    let (routes, attached) = attach(objects, &mut gateways);
    let policies = Policies::new(objects, plan);
    let mut backends = Backends::new(objects, &policies);
    let served = routes.iter().zip(&attached).filter(|(_, parents)| !parents.is_empty());
    let compiled: Vec<CompiledRoute> = served.map(|(route, _)| table::compile(route, &mut backends, plan)).collect();
    merge(&mut plan.table, table::listeners(&gateways, &compiled));
    for gateway in &gateways {
        status::report_gateway(settings, gateway, &objects.unavailable, now, plan);
    }
    let by_key: BTreeMap<_, _> = compiled.iter().map(|route| (&route.key, route)).collect();
    let mut users: BTreeMap<Key, BTreeSet<Key>> = BTreeMap::new();
    for (route, parents) in routes.iter().zip(&attached) {
        let compiled = by_key.get(&(route.value.kind, route.key.clone()));
        let unresolved = compiled.and_then(|compiled| compiled.unresolved.as_ref());
        status::report_route(route, parents, unresolved, now, plan);
        for parent in parents.iter().filter(|parent| parent.rejection.is_none()) {
            for service in compiled.iter().flat_map(|compiled| &compiled.services) {
                users.entry(service.clone()).or_default().insert(parent.gateway.clone());
            }
        }
    }
    policies.report(&users, now, plan);
}

/// Returns the Gateways of this controller, oldest first, with their addresses.
fn gateways<'a>(settings: &Settings, objects: &'a super::Objects, plan: &mut Plan) -> Vec<GatewayState<'a>> {
    let protocol = |listener: &Listener| if listener.tls.is_some() { Protocol::Https } else { Protocol::Http };
    let mut taken: BTreeMap<ListenAddress, Protocol> =
        plan.table.listeners.iter().map(|(address, listener)| (*address, protocol(listener))).collect();
    let mut occupied = addresses::OccupiedListeners::default();
    let mut gateways = Vec::new();
    for entry in by_age(&objects.gateway.gateways, |gateway| gateway.identity.created) {
        if !is_claimed(&entry.value, &objects.gateway.classes) {
            continue;
        }
        let mut gateway = GatewayState::new(entry, objects, plan);
        addresses::assign(settings, &mut gateway, &mut occupied);
        gateway.reject_conflicting_ports(&mut taken);
        gateways.push(gateway);
    }
    gateways
}

/// Attaches all routes, oldest first.
fn attach<'a>(
    objects: &'a super::Objects,
    gateways: &mut [GatewayState<'a>],
) -> (Vec<&'a Entry<Route>>, Vec<Vec<Parent<'a>>>) {
    let routes = objects.gateway.http_routes.iter().chain(objects.gateway.grpc_routes.iter());
    let mut routes: Vec<&Entry<Route>> = routes.map(Arc::as_ref).collect();
    routes.sort_by_key(|entry| (entry.value.identity.created, &entry.key));
    let attached = routes.iter().map(|route| attachment::attach(objects, gateways, route)).collect();
    (routes, attached)
}

/// Adds listeners to a table. In a host that is served already, the added routes come first.
fn merge(table: &mut RoutingTable, listeners: BTreeMap<ListenAddress, Listener>) {
    for (address, added) in listeners {
        let listener = table.listeners.entry(address).or_default();
        if let Some(added) = added.tls {
            let tls = listener.tls.get_or_insert_default();
            tls.certificates.extend(added.certificates);
            tls.default = added.default.or(tls.default.take());
            tls.isolated = added.isolated;
        }
        for (host, virtual_host) in added.hosts {
            listener.hosts.entry(host).or_default().routes.splice(..0, virtual_host.routes);
        }
    }
}

/// Returns entries in the order of their creation.
fn by_age<T>(collection: &Collection<T>, created: impl Fn(&T) -> Option<Time>) -> Vec<&Entry<T>> {
    let mut entries: Vec<&Entry<T>> = collection.iter().map(Arc::as_ref).collect();
    entries.sort_by(|one, other| (created(&one.value), &one.key).cmp(&(created(&other.value), &other.key)));
    entries
}

#[cfg(test)]
mod tests;
