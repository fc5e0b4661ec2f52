//! Which nodes a pod wants, and which pods it wants near or far.

use std::collections::BTreeSet;

use machinery::field::Error;
use machinery::{At, Errors, Path, Value, labels, names};

use super::report::{invalid_int, text};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Whether the values of a selector of nodes must be values of labels: those that are only preferred need not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// They must.
    Judged,
    /// They need not.
    Any,
}

/// What is wrong with the affinity of a pod.
pub(crate) fn validate(affinity: &At<'_>, errors: &mut Errors) {
    let nodes = affinity.get("nodeAffinity");
    let needed = nodes.get(REQUIRED);
    if needed.is_present() {
        node_selector(&needed, errors);
    }
    for term in nodes.get(PREFERRED).items() {
        weight(&term, errors);
        node_selector_term(&term.get("preference"), Values::Any, errors);
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

/// What is wrong with a selector of nodes.
pub(crate) fn node_selector(selector: &At<'_>, errors: &mut Errors) {
    let terms = selector.get("nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(terms.required("must have at least one node selector term"));
    }
    for term in terms.items() {
        node_selector_term(&term, Values::Judged, errors);
    }
}

/// What is wrong with one of the alternatives of a selector of nodes.
pub(crate) fn node_selector_term(term: &At<'_>, values: Values, errors: &mut Errors) {
    for requirement in term.get("matchExpressions").items() {
        label_requirement(&requirement, values, errors);
    }
    for requirement in term.get("matchFields").items() {
        field_requirement(&requirement, errors);
    }
}

/// What is wrong with keys of labels that are merged into a selector.
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
            text(&key, names::qualified_name(key.str()), errors);
        }
    }
    // The selector has the keys' requirements already, so a key that was there before is there twice.
    let mut seen: BTreeSet<&str> = selector
        .value()
        .get("matchLabels")
        .and_then(Value::as_object)
        .map_or_else(BTreeSet::new, |labels| labels.keys().collect());
    let keys: Vec<_> = matching.list().iter().map(|key| key.as_str().unwrap_or_default()).collect();
    for expression in selector.value().get("matchExpressions").and_then(Value::as_array).unwrap_or_default() {
        let key = expression.str_at(&["key"]).unwrap_or_default();
        if !seen.insert(key)
            && let Some(index) = keys.iter().rposition(|one| *one == key)
        {
            let why = "exists in both matchLabelKeys and labelSelector";
            errors.push(Error::invalid(&term.path().index(index), key, why));
        }
    }
    for key in matching.items() {
        if not_matching.list().contains(key.value()) {
            errors.push(key.invalid("exists in both matchLabelKeys and mismatchLabelKeys"));
        }
    }
}

/// What is wrong with a selector of labels, if there is one.
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

fn label_requirement(requirement: &At<'_>, judged: Values, errors: &mut Errors) {
    let (operator, values, key) = (requirement.get("operator"), requirement.get("values"), requirement.get("key"));
    match operator.str() {
        "In" | "NotIn" => {
            if values.is_empty() {
                errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                errors.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
            }
        }
        "Gt" | "Lt" => {
            if values.len() != 1 {
                errors.push(values.required("must be specified single value when `operator` is 'Lt' or 'Gt'"));
            }
        }
        other => errors.push(Error::invalid(operator.path(), other, "not a valid selector operator")),
    }
    text(&key, names::qualified_name(key.str()), errors);
    if judged == Values::Judged {
        for value in values.items() {
            text(&value, names::label_value(value.str()), errors);
        }
    }
}

fn field_requirement(requirement: &At<'_>, errors: &mut Errors) {
    let (operator, values, key) = (requirement.get("operator"), requirement.get("values"), requirement.get("key"));
    if !matches!(operator.str(), "In" | "NotIn") {
        errors.push(Error::invalid(operator.path(), operator.str(), "not a valid selector operator"));
    } else if values.len() != 1 {
        let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
        errors.push(values.required(why));
    }
    if key.str() == "metadata.name" {
        for value in values.items() {
            text(&value, names::dns1123_subdomain(value.str()), errors);
        }
    } else {
        errors.push(Error::invalid(key.path(), key.str(), "not a valid field selector key"));
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
        errors.extend(names::dns1123_label(name).into_iter().map(|why| Error::invalid(&path, name, why)));
    }
    label_keys(term, errors);
    let key = term.get("topologyKey");
    if key.is_empty() {
        errors.push(key.required("can not be empty"));
    }
    text(&key, names::qualified_name(key.str()), errors);
}
