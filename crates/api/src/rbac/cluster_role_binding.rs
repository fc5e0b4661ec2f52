//! ClusterRoleBinding: grants a ClusterRole to subjects in the entire cluster.

use std::sync::Arc;

use apimachinery::meta::{Scope, name_is_path_segment};
use apimachinery::{Errors, Value};

use super::{RoleScope, binding};
use crate::kind::{Context, Kind, Rules, UpdateChecks};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        create_on_update: true,
        name_rule: name_is_path_segment,
        update_checks: UpdateChecks { whole: 1, change: 1 },
        rules: Arc::new(ClusterRoleBinding),
        ..Kind::stored("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings")
    }
    .with_columns(&binding::columns())
}

#[derive(Debug)]
struct ClusterRoleBinding;

impl Rules for ClusterRoleBinding {
    fn default(&self, object: &mut Value, _version: &str) {
        binding::default(object);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        binding::validate(object, &["ClusterRole"], RoleScope::Cluster, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        self.validate(object, context, errors);
        binding::validate_same_role(object, old, "ClusterRoleBinding", errors);
    }
}
