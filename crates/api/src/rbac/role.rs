//! Role: permissions in a namespace.

use machinery::meta::name_is_path_segment;

use crate::kind::Kind;

/// The row of Role.
pub fn kind() -> Kind {
    Kind {
        create_on_update: true,
        name_rule: name_is_path_segment,
        ..Kind::stored("rbac.authorization.k8s.io", "v1", "Role", "roles")
    }
}
