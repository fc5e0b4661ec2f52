//! IPAddress: an address that is taken.

use machinery::meta::Scope;

use crate::kind::{Kind, names};

/// The row of IPAddress.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["ip"]),
        scope: Scope::Cluster,
        ..Kind::stored("networking.k8s.io", "v1", "IPAddress", "ipaddresses").with_beta("v1beta1")
    }
}
