//! Role: permissions in a namespace.

use std::sync::Arc;

use apimachinery::meta::name_is_path_segment;
use apimachinery::{At, Errors, Value};

use super::RoleScope;
use crate::kind::{Context, Kind, Rules, UpdateChecks};

pub fn kind() -> Kind {
    Kind {
        create_on_update: true,
        name_rule: name_is_path_segment,
        rules: Arc::new(Role),
        update_checks: UpdateChecks { whole: 1, change: 1 },
        ..Kind::stored("rbac.authorization.k8s.io", "v1", "Role", "roles")
    }
}

#[derive(Debug)]
struct Role;

impl Rules for Role {
    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        super::rules(&At::root(object), RoleScope::Namespace, errors);
    }
}
