//! ServiceCIDR: where services' addresses come from.

use machinery::meta::Scope;

use crate::kind::{Kind, Subresource};

/// The row of ServiceCIDR.
pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        ..Kind::stored("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs").with_beta("v1beta1")
    }
}
