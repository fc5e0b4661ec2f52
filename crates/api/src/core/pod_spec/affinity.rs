//! Node affinity, pod affinity and pod anti-affinity.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::field::Error;
use apimachinery::{At, Errors, Path, Value, labels, names};

use super::report::invalid_int;
use crate::core::node_selector;
use crate::field_rules::looks;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(crate) fn validate(affinity: &At<'_>, errors: &mut Errors) {
    let nodes = affinity.get("nodeAffinity");
    let needed = nodes.get(REQUIRED);
    if needed.is_present() {
        node_selector::validate(&needed, errors);
    }
    for term in nodes.get(PREFERRED).items() {
        weight(&term, errors);
        node_selector::validate_preferred_term(&term.get("preference"), errors);
    }
    for pods in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.get(pods);
        for term in pods.get(REQUIRED).items() {
            pod_term(&term, errors);
        }
        for weighted in pods.get(PREFERRED).items() {
            weight(&weighted, errors);
            pod_term(&weighted.get("podAffinityTerm"), errors);
        }
    }
}

/// Validates `matchLabelKeys` and `mismatchLabelKeys`.
pub(crate) fn label_keys(term: &At<'_>, errors: &mut Errors) {
    let (matching, not_matching) = (term.get("matchLabelKeys"), term.get("mismatchLabelKeys"));
    let selector = term.get("labelSelector");
    for keys in [&matching, &not_matching] {
        if keys.is_empty() {
            continue;
        }
        if selector.is_absent() {
            errors.push(keys.forbidden("must not be specified when labelSelector is not set"));
            continue;
        }
        for key in keys.items() {
            looks(&key, names::qualified_name, errors);
        }
    }
    // The keys were already merged into the selector, so a key that the client also selected by occurs twice.
    let mut seen: BTreeSet<&str> = selector
        .value()
        .get("matchLabels")
        .and_then(Value::as_object)
        .map_or_else(BTreeSet::new, |labels| labels.keys().collect());
    let text = |key: &'_ Value| key.as_str().unwrap_or_default().to_owned();
    let indices: BTreeMap<_, _> = matching.list().iter().enumerate().map(|(index, key)| (text(key), index)).collect();
    let excluded: BTreeSet<_> = not_matching.list().iter().map(text).collect();
    for expression in selector.value().list_at(&["matchExpressions"]) {
        let key = expression.text_at(&["key"]);
        if !seen.insert(key)
            && let Some(index) = indices.get(key)
        {
            let detail = "exists in both matchLabelKeys and labelSelector";
            errors.push(Error::invalid(&term.path().index(*index), key, detail));
        }
    }
    for key in matching.items() {
        if excluded.contains(key.str()) {
            errors.push(key.invalid("exists in both matchLabelKeys and mismatchLabelKeys"));
        }
    }
}

/// Validates a label selector; null is valid.
pub(crate) fn label_selector(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !selector.is_null() {
        labels::validate_object(selector, path, errors);
    }
}

fn weight(term: &At<'_>, errors: &mut Errors) {
    let weight = term.get("weight");
    if !(1..=100).contains(&weight.int()) {
        errors.push(invalid_int(&weight, "must be in the range 1-100"));
    }
}

fn pod_term(term: &At<'_>, errors: &mut Errors) {
    for selector in ["labelSelector", "namespaceSelector"] {
        let selector = term.get(selector);
        label_selector(selector.value(), selector.path(), errors);
    }
    let path = term.path().field("namespace");
    for namespace in term.get("namespaces").list() {
        let name = namespace.as_str().unwrap_or_default();
        errors.extend(names::dns1123_label(name).into_iter().map(|detail| Error::invalid(&path, name, detail)));
    }
    label_keys(term, errors);
    let key = term.get("topologyKey");
    if key.is_empty() {
        errors.push(key.required("can not be empty"));
    }
    looks(&key, names::qualified_name, errors);
}
