//! The kinds that the controller observes and reports on.

use apimachinery::Resource;

const GATEWAY_API: &str = "gateway.networking.k8s.io";

pub(crate) static INGRESSES: Resource = Resource::namespaced("networking.k8s.io", "v1", "ingresses", "Ingress");
pub(crate) static INGRESS_CLASSES: Resource =
    Resource::cluster("networking.k8s.io", "v1", "ingressclasses", "IngressClass");
pub(crate) static GATEWAY_CLASSES: Resource = Resource::cluster(GATEWAY_API, "v1", "gatewayclasses", "GatewayClass");
pub(crate) static GATEWAYS: Resource = Resource::namespaced(GATEWAY_API, "v1", "gateways", "Gateway");
pub(crate) static HTTP_ROUTES: Resource = Resource::namespaced(GATEWAY_API, "v1", "httproutes", "HTTPRoute");
pub(crate) static GRPC_ROUTES: Resource = Resource::namespaced(GATEWAY_API, "v1", "grpcroutes", "GRPCRoute");
pub(crate) static BACKEND_TLS_POLICIES: Resource =
    Resource::namespaced(GATEWAY_API, "v1", "backendtlspolicies", "BackendTLSPolicy");
/// Also served as `v1`, but only since release 1.5 of the Gateway API.
pub(crate) static REFERENCE_GRANTS: Resource =
    Resource::namespaced(GATEWAY_API, "v1beta1", "referencegrants", "ReferenceGrant");

/// A kind that has a status or Events of this controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Ingress,
    GatewayClass,
    Gateway,
    HttpRoute,
    GrpcRoute,
    BackendTlsPolicy,
}

impl Kind {
    pub fn resource(self) -> &'static Resource {
        match self {
            Kind::Ingress => &INGRESSES,
            Kind::GatewayClass => &GATEWAY_CLASSES,
            Kind::Gateway => &GATEWAYS,
            Kind::HttpRoute => &HTTP_ROUTES,
            Kind::GrpcRoute => &GRPC_ROUTES,
            Kind::BackendTlsPolicy => &BACKEND_TLS_POLICIES,
        }
    }
}
