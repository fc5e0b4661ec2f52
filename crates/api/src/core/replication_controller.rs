//! ReplicationController: so many pods of a template, the old way.

use machinery::GroupVersion;

use crate::kind::{Dependents, Keeping, Kind, Subresource, names};

/// The row of ReplicationController.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["rc"]),
        categories: names(&["all"]),
        keeping: Keeping::Stored {
            prefix: "controllers".into(),
            version: GroupVersion { group: "".into(), version: "v1".into() },
            expires: false,
        },
        subresources: vec![Subresource::scale(), Subresource::status()],
        dependents: Dependents::Orphan,
        ..Kind::stored("", "v1", "ReplicationController", "replicationcontrollers")
    }
}
