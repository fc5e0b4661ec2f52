//! RBAC of the component that applies the manifests directory.

use apimachinery::{Resource, Value, value};

use super::super::Options;
use super::super::plan::MANIFESTS;
use super::binding;

/// Returns the objects that are applied at each start, or none if the component is disabled.
pub(super) fn objects(options: &Options) -> Vec<(Resource, Value)> {
    if options.disable.iter().any(|part| part == MANIFESTS) {
        return Vec::new();
    }
    // It applies any object that root puts into the directory, also roles, for which it needs all permissions.
    let user = value!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "knarr:manifests"}]);
    vec![binding("", "knarr:manifests", "ClusterRole", "cluster-admin", user)]
}
