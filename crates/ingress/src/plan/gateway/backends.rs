//! Resolves references to backends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apimachinery::Key;
use http::StatusCode;

use super::super::backends::endpoints;
use super::super::objects::{PortRef, ServicePort};
use super::super::{Objects, Plan};
use super::grants;
use super::listeners::Problem;
use super::policies::Policies;
use super::routes::BackendRef;
use crate::kinds::Kind;
use crate::routing::{Backend, BackendProtocol, BackendTarget};

/// The default HTTP version of a kind of route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RouteProtocol {
    Http1,
    Http2,
}

/// Resolves each backend once, so that all routes share its connections.
pub(super) struct Backends<'a> {
    objects: &'a Objects,
    policies: &'a Policies<'a>,
    resolved: BTreeMap<(Key, u16, RouteProtocol), Result<Arc<Backend>, Problem>>,
    /// Services that routes refer to.
    pub services: BTreeSet<Key>,
}

impl<'a> Backends<'a> {
    pub(super) const fn new(objects: &'a Objects, policies: &'a Policies<'a>) -> Self {
        Self { objects, policies, resolved: BTreeMap::new(), services: BTreeSet::new() }
    }

    /// Returns the target of a reference of a route, and the problem if it cannot be used.
    pub(super) fn resolve(
        &mut self,
        kind: Kind,
        namespace: &str,
        reference: &BackendRef,
        plan: &mut Plan,
    ) -> (BackendTarget, Option<Problem>) {
        match self.find(kind, namespace, reference, plan) {
            Ok(backend) => (BackendTarget::Endpoints(backend), None),
            Err(problem) => (BackendTarget::Status(StatusCode::INTERNAL_SERVER_ERROR), Some(problem)),
        }
    }

    fn find(
        &mut self,
        kind: Kind,
        namespace: &str,
        reference: &BackendRef,
        plan: &mut Plan,
    ) -> Result<Arc<Backend>, Problem> {
        let target = &reference.target;
        if !target.is("", "Service") {
            let message = format!("backend {} {} is not supported: only Services are", target.kind, target.name);
            return Err(("InvalidKind", message));
        }
        let key = target.key(namespace);
        if !grants::allows(self.objects, &kind.resource().kind, namespace, "Service", &key) {
            let message = format!("no ReferenceGrant of namespace {} allows Service {key}", key.namespace);
            return Err(("RefNotPermitted", message));
        }
        plan.services.insert(key.clone());
        self.services.insert(key.clone());
        let Some(port) = reference.port else {
            return Err(("UnsupportedValue", format!("the reference to Service {key} has no port")));
        };
        let route_protocol = if kind == Kind::GrpcRoute { RouteProtocol::Http2 } else { RouteProtocol::Http1 };
        let (objects, policies) = (self.objects, self.policies);
        let resolved = self.resolved.entry((key.clone(), port, route_protocol));
        resolved.or_insert_with(|| resolve_port(objects, policies, &key, port, route_protocol)).clone()
    }
}

fn resolve_port(
    objects: &Objects,
    policies: &Policies<'_>,
    key: &Key,
    number: u16,
    route_protocol: RouteProtocol,
) -> Result<Arc<Backend>, Problem> {
    let Some(service) = objects.services.get(key) else {
        return Err(("BackendNotFound", format!("Service {key} does not exist")));
    };
    if service.is_external_name {
        let message = format!("Service {key} has type ExternalName, to which this controller does not forward");
        return Err(("UnsupportedValue", message));
    }
    let Some(port) = service.port(&PortRef::Number(number)) else {
        return Err(("BackendNotFound", format!("Service {key} has no TCP port {number}")));
    };
    let protocol = match policies.find(key, &port.name) {
        Some(tls) => BackendProtocol::Https(tls?.clone()),
        None => protocol(key, port, route_protocol)?,
    };
    let endpoints = endpoints(objects, key, service, port);
    Ok(Arc::new(Backend { name: format!("{key}:{number}"), protocol, endpoints }))
}

/// Returns the protocol of a port without a BackendTLSPolicy.
fn protocol(service: &Key, port: &ServicePort, route_protocol: RouteProtocol) -> Result<BackendProtocol, Problem> {
    let needs_policy = || {
        let message = format!(
            "port {} of Service {service} has appProtocol {} but no BackendTLSPolicy",
            port.port, port.app_protocol
        );
        Err(("UnsupportedProtocol", message))
    };
    match port.app_protocol.to_ascii_lowercase().as_str() {
        "kubernetes.io/h2c" | "grpc" | "h2c" => Ok(BackendProtocol::Http2),
        "https" | "kubernetes.io/wss" => needs_policy(),
        _ if route_protocol == RouteProtocol::Http2 => Ok(BackendProtocol::Http2),
        _ => Ok(BackendProtocol::Http1),
    }
}
