//! Ingress: HTTP from outside to services.

use machinery::GroupVersion;

use crate::kind::{Keeping, Kind, Subresource, names};

/// The row of Ingress.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["ing"]),
        keeping: Keeping::Stored {
            prefix: "ingress".into(),
            version: GroupVersion { group: "networking.k8s.io".into(), version: "v1".into() },
            expires: false,
        },
        subresources: vec![Subresource::status()],
        ..Kind::stored("networking.k8s.io", "v1", "Ingress", "ingresses")
    }
}
