//! RuntimeClass: how the containers of a pod are run.

use machinery::meta::Scope;

use crate::kind::Kind;

/// The row of RuntimeClass.
pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        create_on_update: true,
        ..Kind::stored("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses")
    }
}
