//! CustomResourceDefinition: a kind made at run time.

use machinery::GroupVersion;
use machinery::meta::Scope;

use crate::kind::{Keeping, Kind, Subresource, names};

/// The row of CustomResourceDefinition.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["crd", "crds"]),
        categories: names(&["api-extensions"]),
        scope: Scope::Cluster,
        keeping: Keeping::Stored {
            prefix: "apiextensions.k8s.io/customresourcedefinitions".into(),
            version: GroupVersion { group: "apiextensions.k8s.io".into(), version: "v1".into() },
            expires: false,
        },
        subresources: vec![Subresource::status()],
        ..Kind::stored("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
    }
}
