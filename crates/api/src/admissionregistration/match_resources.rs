//! MatchResources and rules: select requests by resource, operation, namespace and labels.

use std::collections::BTreeSet;

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value};

use crate::field_rules::{default_to, items_mut, label_selector, one_of, one_of_if_present, path_segment};

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

pub(super) fn default_rules(owner: &mut Value, field: &str) {
    for rule in items_mut(owner, field) {
        default_to(rule, "scope", "*");
    }
}

pub(super) fn default(owner: &mut Value, field: &str) {
    let Some(resources) = owner.get_mut(field).filter(|resources| !resources.is_null()) else { return };
    default_to(resources, "matchPolicy", "Equivalent");
    default_to(resources, "namespaceSelector", Value::object());
    default_to(resources, "objectSelector", Value::object());
    default_rules(resources, "resourceRules");
    default_rules(resources, "excludeResourceRules");
}

/// Validates match resources; absent ones are valid.
pub(super) fn validate(resources: &At<'_>, errors: &mut Errors) {
    if resources.is_absent() {
        return;
    }
    let policy = resources.get("matchPolicy");
    if policy.is_absent() {
        errors.push(policy.required(""));
    } else {
        one_of(&policy, &["Equivalent", "Exact"], errors);
    }
    for field in ["namespaceSelector", "objectSelector"] {
        if resources.get(field).is_absent() {
            errors.push(resources.get(field).required(""));
        } else {
            label_selector(&resources.get(field), errors);
        }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        let rules = resources.get(field);
        for rule in rules.items() {
            validate_names(&rule.get("resourceNames"), errors);
            validate_rule(&rule, errors);
        }
    }
}

pub(super) fn validate_rule(rule: &At<'_>, errors: &mut Errors) {
    let operations = rule.get("operations");
    nonempty_and_wild(&operations, "operations", errors);
    for operation in operations.items() {
        one_of(&operation, OPERATIONS, errors);
    }
    nonempty_and_wild(&rule.get("apiGroups"), "API groups", errors);
    let versions = rule.get("apiVersions");
    nonempty_and_wild(&versions, "API versions", errors);
    for version in versions.items().filter(At::is_empty) {
        errors.push(version.required(""));
    }
    validate_resources(&rule.get("resources"), errors);
    one_of_if_present(&rule.get("scope"), &["*", "Cluster", "Namespaced"], errors);
}

fn validate_names(names: &At<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for name in names.items() {
        path_segment(name.str(), name.path(), errors);
        if !seen.insert(name.str()) {
            errors.push(name.duplicate());
        }
    }
}

/// Requires a non-empty list in which a wildcard is the only item.
fn nonempty_and_wild(list: &At<'_>, what: &str, errors: &mut Errors) {
    if list.is_empty() {
        errors.push(list.required(""));
    }
    if list.len() > 1 && list.items().any(|item| item.str() == "*") {
        errors.push(list.invalid(format!("if '*' is present, must not specify other {what}")));
    }
}

fn validate_resources(resources: &At<'_>, errors: &mut Errors) {
    if resources.is_empty() {
        errors.push(resources.required(""));
    }
    let (mut all_parts, mut all_owners) = (BTreeSet::new(), BTreeSet::new());
    let mut plain_last = false;
    for at in resources.items() {
        let name = at.str();
        if name.is_empty() {
            errors.push(at.required(""));
            continue;
        }
        let Some((resource, subresource)) = name.split_once('/') else {
            // As in upstream, only the last plain resource counts.
            plain_last = name != "*";
            continue;
        };
        if all_parts.contains(resource) {
            errors.push(at.invalid(format!("if '{resource}/*' is present, must not specify {name}")));
        }
        if all_owners.contains(subresource) {
            errors.push(at.invalid(format!("if '*/{subresource}' is present, must not specify {name}")));
        }
        if subresource == "*" {
            all_parts.insert(resource);
        }
        if resource == "*" {
            all_owners.insert(subresource);
        }
    }
    let has = |pattern: &str| resources.items().any(|item| item.str() == pattern);
    if resources.len() > 1 && has("*/*") {
        errors.push(resources.invalid("if '*/*' is present, must not specify other resources"));
    }
    if has("*") && plain_last {
        errors.push(resources.invalid("if '*' is present, must not specify other resources without subresources"));
    }
}

/// Rejects DELETE for mutating policies: a deleted object cannot be changed.
pub(super) fn validate_mutating_operations(resources: &At<'_>, errors: &mut Errors) {
    const MUTATING: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
    let rules = resources.get("resourceRules");
    for rule in rules.items() {
        let operations = rule.get("operations");
        for operation in operations.items().filter(|operation| !MUTATING.contains(&operation.str())) {
            // Upstream reports the path of the rule list, not of the rule.
            errors.push(Error::not_supported(rules.get("operations").path(), operation.str(), MUTATING));
        }
    }
}
