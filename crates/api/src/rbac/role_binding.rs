//! RoleBinding: who has a role in a namespace.

use machinery::meta::name_is_path_segment;

use crate::kind::Kind;

/// The row of RoleBinding.
pub fn kind() -> Kind {
    Kind {
        create_on_update: true,
        name_rule: name_is_path_segment,
        ..Kind::stored("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
    }
}
