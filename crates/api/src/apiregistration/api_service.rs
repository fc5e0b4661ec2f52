//! APIService: who serves a version of a group.

use machinery::GroupVersion;
use machinery::meta::Scope;

use crate::kind::{Keeping, Kind, Subresource, names};

/// The row of APIService.
pub fn kind() -> Kind {
    Kind {
        categories: names(&["api-extensions"]),
        scope: Scope::Cluster,
        keeping: Keeping::Stored {
            prefix: "apiregistration.k8s.io/apiservices".into(),
            version: GroupVersion { group: "apiregistration.k8s.io".into(), version: "v1".into() },
            expires: false,
        },
        subresources: vec![Subresource::status()],
        ..Kind::stored("apiregistration.k8s.io", "v1", "APIService", "apiservices")
    }
}
