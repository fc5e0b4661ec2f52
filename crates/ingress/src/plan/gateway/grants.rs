//! ReferenceGrants: which references to other namespaces are allowed.

use apimachinery::Key;

use super::super::Objects;
use super::objects::GROUP;

/// Whether an object of the Gateway API in `namespace` may refer to `target`, which belongs to the core group.
pub(super) fn allows(objects: &Objects, from_kind: &str, namespace: &str, target_kind: &str, target: &Key) -> bool {
    if target.namespace == namespace {
        return true;
    }
    let is_from =
        |(group, kind, from): &(String, String, String)| group == GROUP && kind == from_kind && from == namespace;
    let is_to = |(group, kind, name): &(String, String, Option<String>)| {
        group.is_empty() && kind == target_kind && name.as_ref().is_none_or(|name| target.name == name.as_str())
    };
    let mut grants = objects.gateway.grants.in_namespace(&target.namespace);
    grants.any(|grant| grant.value.from.iter().any(is_from) && grant.value.to.iter().any(is_to))
}
