//! PriorityLevelConfiguration: how many requests at once.

use machinery::meta::Scope;

use crate::kind::{Kind, Subresource};

/// The row of PriorityLevelConfiguration.
pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::status()],
        ..Kind::stored(
            "flowcontrol.apiserver.k8s.io",
            "v1",
            "PriorityLevelConfiguration",
            "prioritylevelconfigurations",
        )
    }
}
