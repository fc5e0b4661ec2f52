//! ClusterRoleBinding: who has a role everywhere.

use machinery::meta::{Scope, name_is_path_segment};

use crate::kind::Kind;

/// The row of ClusterRoleBinding.
pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        create_on_update: true,
        name_rule: name_is_path_segment,
        ..Kind::stored("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings")
    }
}
