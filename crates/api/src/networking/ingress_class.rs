//! IngressClass: who serves an ingress.

use machinery::meta::Scope;

use crate::kind::Kind;

/// The row of IngressClass.
pub fn kind() -> Kind {
    Kind { scope: Scope::Cluster, ..Kind::stored("networking.k8s.io", "v1", "IngressClass", "ingressclasses") }
}
