//! Matches requests against the resource rules and selectors of a policy, binding or webhook.

use std::sync::{Arc, LazyLock};

use api::kind::{Kind, Persistence, Version};
use api::resources::NAMESPACES;
use apimachinery::Value;
use apimachinery::labels::from_object;
use apimachinery::meta::{Meta, Scope};

use crate::Attributes;

/// A kind in the version in which a matcher sees its objects.
#[derive(Clone, Copy, Debug)]
pub struct VersionedKind<'a> {
    /// The request's kind, or an equivalent kind with the same objects.
    pub kind: &'a Kind,
    pub version: &'a Version,
}

static BUILT_IN: LazyLock<Vec<Arc<Kind>>> = LazyLock::new(api::kinds::all);

/// Returns the version in which objects are passed on if the constraints match the request, otherwise `None`.
///
/// `namespace` is the object's namespace, or the object itself if it is a Namespace.
pub(crate) fn matches<'a>(
    constraints: &Value,
    attributes: &Attributes<'a>,
    object: &Value,
    namespace: Option<&Value>,
) -> Option<VersionedKind<'a>> {
    if !selects_namespace(constraints, attributes, object, namespace)
        || !selects_object(constraints, attributes, object)
    {
        return None;
    }
    let equivalent = constraints.text_at(&["matchPolicy"]) != "Exact";
    if by_rules(constraints.list_at(&["excludeResourceRules"]), attributes, object, equivalent).is_some() {
        return None;
    }
    match constraints.list_at(&["resourceRules"]) {
        [] => Some(attributes.as_requested()),
        rules => by_rules(rules, attributes, object, equivalent),
    }
}

fn selects_namespace(
    constraints: &Value,
    attributes: &Attributes<'_>,
    object: &Value,
    namespace: Option<&Value>,
) -> bool {
    let Some(selector) = constraints.get("namespaceSelector") else { return true };
    let is_namespace = attributes.is(NAMESPACES);
    if attributes.namespace.is_empty() && !is_namespace {
        return true;
    }
    let Ok(selector) = from_object(Some(selector)) else { return false };
    let labels = match namespace {
        _ if writes_namespace(attributes, object) => Meta::of(object).labels(),
        Some(namespace) => Meta::of(namespace).labels(),
        None => None,
    };
    selector.matches_labels(labels)
}

/// Whether the write sets the labels of a Namespace, so that the cached Namespace does not have them yet.
pub(crate) fn writes_namespace(attributes: &Attributes<'_>, object: &Value) -> bool {
    attributes.is(NAMESPACES) && attributes.subresource.is_empty() && !object.is_null()
}

/// Whether the object selector matches the new or the old object.
pub(crate) fn selects_object(constraints: &Value, attributes: &Attributes<'_>, object: &Value) -> bool {
    let Some(selector) = constraints.get("objectSelector") else { return true };
    let Ok(selector) = from_object(Some(selector)) else { return false };
    let fits = |object: &Value| !object.is_null() && selector.matches_labels(Meta::of(object).labels());
    let empty = selector.requirements().is_some_and(<[_]>::is_empty);
    empty || fits(object) || attributes.old.is_some_and(fits)
}

/// Returns the version of the first matching rule: the request's own version if any rule matches it.
pub(crate) fn by_rules<'a>(
    rules: &[Value],
    attributes: &Attributes<'a>,
    object: &Value,
    equivalent: bool,
) -> Option<VersionedKind<'a>> {
    let fits = |seen: &VersionedKind<'_>| rules.iter().any(|rule| rule_matches(rule, attributes, object, seen));
    Some(attributes.as_requested()).filter(&fits).or_else(|| {
        let kinds = [Some(attributes.kind), twin(attributes.kind)].into_iter().flatten();
        let mut others =
            kinds.flat_map(|kind| kind.versions.iter().map(move |version| VersionedKind { kind, version }));
        if equivalent { others.find(&fits) } else { None }
    })
}

/// Returns the equivalent kind in another group with the same storage. Only Events have one.
fn twin(kind: &Kind) -> Option<&'static Kind> {
    let Persistence::Stored { prefix, .. } = &kind.persistence else { return None };
    let is_twin = |other: &&Arc<Kind>| {
        other.group != kind.group
            && matches!(&other.persistence, Persistence::Stored { prefix: its, .. } if its == prefix)
    };
    BUILT_IN.iter().find(is_twin).map(|kind| &**kind)
}

fn rule_matches(rule: &Value, attributes: &Attributes<'_>, object: &Value, seen: &VersionedKind<'_>) -> bool {
    let any = |field: &str, word: &str| {
        rule.list_at(&[field]).iter().any(|have| matches!(have.as_str(), Some(have) if have == "*" || have == word))
    };
    let scope = match rule.text_at(&["scope"]) {
        "Namespaced" => attributes.kind.scope == Scope::Namespaced,
        "Cluster" => attributes.kind.scope == Scope::Cluster,
        _ => true,
    };
    let names = rule.list_at(&["resourceNames"]);
    let name = if attributes.name.is_empty() { Meta::of(object).name() } else { attributes.name };
    any("operations", attributes.operation.word())
        && any("apiGroups", &seen.kind.group)
        && any("apiVersions", &seen.version.name)
        && scope
        && (names.is_empty() || names.iter().any(|have| have.as_str() == Some(name)))
        && rule
            .list_at(&["resources"])
            .iter()
            .filter_map(Value::as_str)
            .any(|resource| resource_matches(resource, attributes))
}

/// Matches `pods`, `pods/status`, `pods/*`, `*/status`, `*` (no subresources) or `*/*`.
fn resource_matches(pattern: &str, attributes: &Attributes<'_>) -> bool {
    let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    let fits = |pattern: &str, word: &str| pattern == "*" || pattern == word;
    fits(resource, &attributes.kind.plural) && fits(subresource, attributes.subresource)
}
