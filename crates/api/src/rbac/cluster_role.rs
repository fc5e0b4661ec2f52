//! ClusterRole: permissions in all namespaces and on cluster-scoped resources.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Scope, name_is_path_segment};
use apimachinery::{At, Errors, Value, labels};

use super::RoleScope;
use crate::field_rules::label_selector;
use crate::kind::{Context, Kind, Rules, UpdateChecks};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        create_on_update: true,
        name_rule: name_is_path_segment,
        rules: Arc::new(ClusterRole),
        update_checks: UpdateChecks { whole: 1, change: 1 },
        ..Kind::stored("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles")
    }
}

#[derive(Debug)]
struct ClusterRole;

impl Rules for ClusterRole {
    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        super::rules(&root, RoleScope::Cluster, errors);
        let aggregation = root.get("aggregationRule");
        if aggregation.is_absent() {
            return;
        }
        let selectors = aggregation.get("clusterRoleSelectors");
        if selectors.is_empty() {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            errors.push(selectors.required(detail));
        }
        for selector in selectors.items() {
            label_selector(&selector, errors);
            if labels::from_object(Some(selector.value())).is_err() {
                errors.push(Error::invalid(selector.path(), Value::Null, "invalid label selector."));
            }
        }
    }
}
