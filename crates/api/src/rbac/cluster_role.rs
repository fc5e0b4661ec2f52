//! ClusterRole: permissions for the whole cluster or for reuse.

use machinery::meta::{Scope, name_is_path_segment};

use crate::kind::Kind;

/// The row of ClusterRole.
pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        create_on_update: true,
        name_rule: name_is_path_segment,
        ..Kind::stored("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles")
    }
}
