//! Resolves the backend of a path to the endpoints of a Service port.

use std::net::SocketAddr;
use std::sync::Arc;

use apimachinery::Key;
use http::StatusCode;

use super::annotations::Protocol;
use super::objects::{BackendRef, Endpoint, Service, ServicePort};
use super::{BY_SERVICE, Objects};
use crate::routing::{Backend, BackendProtocol, BackendTarget, BackendTls};

/// BackendProblem of a backend, as the reason and the message of an Event.
pub(super) type BackendProblem = (&'static str, String);

/// Returns the target of a backend, and the problem if it cannot be used.
pub(super) fn resolve(
    objects: &Objects,
    namespace: &str,
    backend: &BackendRef,
    protocol: Option<Protocol>,
) -> (BackendTarget, Option<BackendProblem>) {
    match find(objects, namespace, backend, protocol) {
        Ok(backend) => (BackendTarget::Endpoints(Arc::new(backend)), None),
        Err((status, rejection)) => (BackendTarget::Status(status), Some(rejection)),
    }
}

fn find(
    objects: &Objects,
    namespace: &str,
    backend: &BackendRef,
    protocol: Option<Protocol>,
) -> Result<Backend, (StatusCode, BackendProblem)> {
    let reject = |status, reason, message| Err((status, (reason, message)));
    let (name, port_ref) = match backend {
        BackendRef::Service { name, port } => (name, port),
        BackendRef::Resource { kind, name } => {
            let message = format!("backend {kind} {name} is not supported: only Services are");
            return reject(StatusCode::INTERNAL_SERVER_ERROR, "UnsupportedBackend", message);
        }
    };
    let key = Key::new(namespace, name.as_str());
    let Some(service) = objects.services.get(&key) else {
        return reject(StatusCode::SERVICE_UNAVAILABLE, "BackendNotFound", format!("Service {name} does not exist"));
    };
    if service.is_external_name {
        let message = format!("Service {name} has type ExternalName, to which this controller does not forward");
        return reject(StatusCode::INTERNAL_SERVER_ERROR, "UnsupportedBackend", message);
    }
    let Some(port) = service.port(port_ref) else {
        let message = format!("Service {name} has no TCP port {port_ref}");
        return reject(StatusCode::SERVICE_UNAVAILABLE, "BackendNotFound", message);
    };
    Ok(Backend {
        name: format!("{key}:{}", port.port),
        protocol: backend_protocol(protocol, port, &key),
        endpoints: endpoints(objects, &key, service, port),
    })
}

/// Returns the protocol of the annotation, otherwise of `appProtocol`.
fn backend_protocol(annotated: Option<Protocol>, port: &ServicePort, service: &Key) -> BackendProtocol {
    match annotated {
        Some(Protocol::Grpc) => BackendProtocol::Http2,
        // Pods usually have self-signed certificates, and no field of an Ingress names their CA.
        Some(Protocol::Https) => BackendProtocol::Https(BackendTls {
            server_name: format!("{}.{}.svc", service.name, service.namespace),
            ca_pem: None,
            alternative_names: Vec::new(),
        }),
        None if port.app_protocol == "kubernetes.io/h2c" => BackendProtocol::Http2,
        Some(Protocol::Http) | None => BackendProtocol::Http1,
    }
}

/// Returns the ready endpoints of the Service's preferred IP family; without any, those that serve while they
/// terminate.
pub(super) fn endpoints(objects: &Objects, key: &Key, service: &Service, port: &ServicePort) -> Vec<SocketAddr> {
    let mut all: Vec<(&Endpoint, u16)> = Vec::new();
    for slice in objects.slices.by(BY_SERVICE, &key.to_string()) {
        for (_, number) in slice.value.ports.iter().filter(|(name, _)| *name == port.name) {
            all.extend(slice.value.endpoints.iter().map(|endpoint| (endpoint, *number)));
        }
    }
    let select = |condition: fn(&Endpoint) -> bool, ipv6: bool| {
        let chosen = all.iter().filter(|(endpoint, _)| condition(endpoint) && endpoint.ip.is_ipv6() == ipv6);
        let mut chosen: Vec<_> = chosen.map(|(endpoint, port)| SocketAddr::new(endpoint.ip, *port)).collect();
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    };
    let ready: fn(&Endpoint) -> bool = |endpoint| endpoint.ready;
    let serving: fn(&Endpoint) -> bool = |endpoint| endpoint.serving && endpoint.terminating;
    let families = [service.prefers_ipv6, !service.prefers_ipv6];
    let choices = [ready, serving].into_iter().flat_map(|condition| families.map(|ipv6| select(condition, ipv6)));
    choices.into_iter().find(|chosen| !chosen.is_empty()).unwrap_or_default()
}
