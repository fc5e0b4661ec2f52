//! API kinds of the rbac.authorization.k8s.io group.

mod binding;
pub mod cluster_role;
pub mod cluster_role_binding;
pub mod role;
pub mod role_binding;

use apimachinery::{At, Errors};

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[cluster_role::kind, cluster_role_binding::kind, role::kind, role_binding::kind];

/// API group of roles, users and groups.
const GROUP: &str = "rbac.authorization.k8s.io";

/// The scope of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoleScope {
    Namespace,
    Cluster,
}

/// Validates the rules of a role.
fn rules(object: &At<'_>, reach: RoleScope, errors: &mut Errors) {
    let rules = object.get("rules");
    for rule in rules.items() {
        if rule.get("verbs").is_empty() {
            errors.push(rule.get("verbs").required("verbs must contain at least one value"));
        }
        let urls = rule.get("nonResourceURLs");
        if urls.is_empty() {
            if rule.get("apiGroups").is_empty() {
                errors.push(rule.get("apiGroups").required("resource rules must supply at least one api group"));
            }
            if rule.get("resources").is_empty() {
                errors.push(rule.get("resources").required("resource rules must supply at least one resource"));
            }
            continue;
        }
        if reach == RoleScope::Namespace {
            errors.push(urls.invalid("namespaced rules cannot apply to non-resource URLs"));
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !rule.get(field).is_empty()) {
            errors.push(urls.invalid("rules cannot apply to both regular resources and non-resource URLs"));
        }
    }
}
