//! RoleBinding: grants a role to subjects in a namespace.

use std::sync::Arc;

use apimachinery::meta::name_is_path_segment;
use apimachinery::{Errors, Value};

use super::{RoleScope, binding};
use crate::kind::{Context, Kind, Rules, UpdateChecks};

pub fn kind() -> Kind {
    Kind {
        create_on_update: true,
        name_rule: name_is_path_segment,
        rules: Arc::new(RoleBinding),
        update_checks: UpdateChecks { whole: 1, change: 1 },
        ..Kind::stored("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
    }
    .with_columns(&binding::columns())
}

#[derive(Debug)]
struct RoleBinding;

impl Rules for RoleBinding {
    fn default(&self, object: &mut Value, _version: &str) {
        binding::default(object);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        binding::validate(object, &["Role", "ClusterRole"], RoleScope::Namespace, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        self.validate(object, context, errors);
        binding::validate_same_role(object, old, "RoleBinding", errors);
    }
}
