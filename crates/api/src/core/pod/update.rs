//! Validation of pod updates: mutable fields of an existing pod.

use std::collections::BTreeSet;

use apimachinery::field::{BadValue, Error};
use apimachinery::{At, Errors, Object, Value, go, names};

use super::super::object_meta;
use super::super::pod_spec::{self, APP_ARMOR, invalid_int};
use crate::field_rules::keep;
use crate::go_form::pods::{diff, print};
use crate::view::CONFIG_MIRROR as MIRROR;

/// The mutable fields, as listed in the error message.
const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Validates a pod that replaces `old`.
pub(super) fn validate(object: &Value, old: &Value, errors: &mut Errors) {
    object_meta::updated(object, old, errors);
    object_meta::validate_as_new(object, errors);
    super::validate(object, errors);
    annotations(object, old, errors);
    let (root, before) = (At::root(object), At::root(old));
    let (spec, old_spec) = (root.get("spec"), before.get("spec"));
    for field in ["containers", "initContainers"] {
        if !images(&spec.get(field), &old_spec.get(field), errors) {
            return;
        }
    }
    if !deadline(&spec, &old_spec, errors) {
        return;
    }
    added_tolerations(&spec.get("tolerations"), &old_spec.get("tolerations"), errors);
    removed_gates(&spec.get("schedulingGates"), &old_spec.get("schedulingGates"), errors);
    if spec.value() == old_spec.value() {
        return;
    }
    let mut munged = spec.value().clone();
    munge(&mut munged, old_spec.value());
    if !old_spec.get("schedulingGates").is_empty() {
        gated(&mut munged, &spec, old_spec.value(), errors);
    }
    if munged != *old_spec.value() {
        let changes = diff("PodSpec", old_spec.value(), &munged);
        errors.push(spec.forbidden(format!("pod updates may not change fields other than {CHANGEABLE}\n{changes}")));
    }
}

/// Validates an update of the ephemeral containers.
pub(super) fn validate_ephemeral_containers(object: &Value, old: &Value, errors: &mut Errors) {
    if old.at(&["metadata", "annotations", MIRROR]).is_some() {
        errors.clear();
        errors.push(nowhere("static pods do not support ephemeral containers"));
        return;
    }
    object_meta::updated(object, old, errors);
    object_meta::validate_as_new(object, errors);
    super::validate(object, errors);
    annotations(object, old, errors);
    let (root, before) = (At::root(object), At::root(old));
    let (spec, old_spec) = (root.get("spec"), before.get("spec"));
    let now = spec.get("ephemeralContainers");
    for container in old_spec.get("ephemeralContainers").list() {
        let name = container.text_at(&["name"]);
        match now.list().iter().rfind(|it| it.text_at(&["name"]) == name) {
            None => {
                let name = go::quote(name);
                errors.push(now.forbidden(format!("existing ephemeral containers {name} may not be removed\n")));
            }
            Some(new) if new != container => {
                let (name, changes) = (go::quote(name), diff("EphemeralContainer", container, new));
                let detail = format!("existing ephemeral containers {name} may not be changed\n{changes}");
                errors.push(now.forbidden(detail));
            }
            Some(_) => {}
        }
    }
}

/// Returns a Forbidden error without a field path.
pub(super) fn nowhere(detail: &str) -> Error {
    Error { field: String::new(), ..Error::forbidden(&apimachinery::Path::ROOT, detail) }
}

/// Rejects changes of annotations that the kubelet reads.
pub(super) fn annotations(object: &Value, old: &Value, errors: &mut Errors) {
    let root = At::root(object);
    let metadata = root.get("metadata");
    let now = metadata.get("annotations");
    let before = old.at(&["metadata", "annotations"]).and_then(Value::as_object);
    let description = |key: &str| {
        let armor = key.starts_with(APP_ARMOR).then_some("AppArmor annotations");
        armor.or_else(|| (key == MIRROR).then_some("mirror pod annotation"))
    };
    for (key, value) in before.into_iter().flat_map(Object::iter) {
        if now.value().get(key) != Some(value)
            && let Some(what) = description(key)
        {
            errors.push(now.entry(key).forbidden(format!("may not remove or update {what}")));
        }
    }
    for (key, value) in now.entries() {
        if before.is_none_or(|before| !before.contains_key(key))
            && let Some(what) = description(key)
        {
            errors.push(value.forbidden(format!("may not add {what}")));
        }
    }
    pod_spec::validate_annotations(now.value(), &root.get("spec"), now.path(), errors);
}

/// Requires the same number of containers, each with an image. Returns whether they can be compared pairwise.
fn images(containers: &At<'_>, old: &At<'_>, errors: &mut Errors) -> bool {
    if containers.len() != old.len() {
        errors.push(containers.forbidden("pod updates may not add or remove containers"));
        return false;
    }
    for container in containers.items() {
        let image = container.get("image");
        if image.is_empty() {
            errors.push(image.required(""));
        }
        pod_spec::only_for_pod(&container, errors);
    }
    true
}

/// `activeDeadlineSeconds` can be set and decreased. Returns whether validation should continue.
fn deadline(spec: &At<'_>, old: &At<'_>, errors: &mut Errors) -> bool {
    let (now, before) = (spec.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"));
    if now.is_absent() {
        if before.is_present() {
            errors.push(now.invalid("must not update from a positive integer to nil value"));
        }
        return true;
    }
    let wrong = names::in_range(now.int(), 0, i32::MAX.into());
    if let Some(detail) = wrong.into_iter().next() {
        errors.push(invalid_int(&now, detail));
        return false;
    }
    if before.is_present() && before.int() < now.int() {
        errors.push(invalid_int(&now, "must be less than or equal to previous value"));
        return false;
    }
    true
}

fn added_tolerations(now: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let but_seconds = |toleration: &Value| {
        let text = |field: &str| toleration.text_at(&[field]).to_owned();
        ["key", "operator", "value", "effect"].map(text)
    };
    let remaining: BTreeSet<_> = now.list().iter().map(but_seconds).collect();
    if old.list().iter().any(|toleration| !remaining.contains(&but_seconds(toleration))) {
        errors.push(now.forbidden("existing toleration can not be modified except its tolerationSeconds"));
        return;
    }
    pod_spec::validate_tolerations(now, errors);
}

fn removed_gates(now: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let had: BTreeSet<_> = old.list().iter().map(|gate| gate.text_at(&["name"])).collect();
    for gate in now.items() {
        let name = gate.get("name");
        if !had.contains(name.str()) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{}'", name.str());
            errors.push(name.forbidden(detail));
        }
    }
}

/// Restores the mutable fields, so that remaining differences are violations.
fn munge(spec: &mut Value, old: &Value) {
    for field in ["containers", "initContainers"] {
        let before = old.get(field).and_then(Value::as_array).unwrap_or_default();
        let now = spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, before) in now.zip(before) {
            keep(container, before, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        keep(spec, old, field);
    }
    let grace = |spec: &Value| spec.get("terminationGracePeriodSeconds").and_then(Value::as_int);
    if grace(old).is_some_and(|before| before < 0) && grace(spec) == Some(1) {
        keep(spec, old, "terminationGracePeriodSeconds");
    }
}

/// Allows a pod with scheduling gates to narrow its node selector and affinity.
fn gated(munged: &mut Value, spec: &At<'_>, old: &Value, errors: &mut Errors) {
    let selector = spec.get("nodeSelector");
    let before = old.get("nodeSelector").and_then(Value::as_object);
    if munged.get("nodeSelector") != old.get("nodeSelector") {
        let lost = |(key, value): (&str, &Value)| selector.value().get(key) != Some(value);
        if before.into_iter().flat_map(Object::iter).any(lost) {
            let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            errors.push(selector.invalid(detail));
        }
        keep(munged, old, "nodeSelector");
    }
    let path = ["affinity", "nodeAffinity"];
    if munged.at(&path) == old.at(&path) {
        return;
    }
    node_affinity(spec, old.at(&path).unwrap_or(&Value::Null), errors);
    let lone = |affinity: &Value| affinity.as_object().is_some_and(|it| it.keys().all(|key| key == "nodeAffinity"));
    let (has, had) = (munged.get("affinity").is_some(), old.get("affinity").is_some());
    if !has && had && old.get("affinity").is_some_and(lone) || has && !had && munged.get("affinity").is_some_and(lone) {
        keep(munged, old, "affinity");
    } else if let Some(affinity) = munged.get_mut("affinity") {
        keep(affinity, old.get("affinity").unwrap_or(&Value::Null), "nodeAffinity");
    }
}

fn node_affinity(spec: &At<'_>, old: &Value, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let Some(needed) = old.get(REQUIRED) else { return };
    let before = needed.list_at(&["nodeSelectorTerms"]);
    let affinity = spec.get("affinity");
    let nodes = affinity.get("nodeAffinity");
    let selector = nodes.get(REQUIRED);
    let terms = selector.get("nodeSelectorTerms");
    if !before.is_empty() && before.len() != terms.len() {
        let bad_value: Vec<_> = terms.list().iter().map(|term| print("NodeSelectorTerm", term)).collect();
        let bad_value = if terms.is_absent() { "null".to_owned() } else { format!("[{}]", bad_value.join(",")) };
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.push(Error::invalid(terms.path(), BadValue::Text(bad_value), detail));
        return;
    }
    for (term, old) in terms.items().zip(before) {
        if !only_adds(term.value(), old) {
            let bad_value = BadValue::Text(print("NodeSelectorTerm", term.value()));
            errors.push(Error::invalid(
                term.path(),
                bad_value,
                "only additions are allowed (no mutations or deletions)",
            ));
        }
    }
}

fn only_adds(term: &Value, old: &Value) -> bool {
    let list = |term: &Value, field: &str| term.get(field).and_then(Value::as_array).unwrap_or_default().to_vec();
    let fields = ["matchExpressions", "matchFields"];
    let matched_nothing = fields.iter().all(|field| list(old, field).is_empty());
    if matched_nothing {
        return fields.iter().all(|field| list(term, field).is_empty());
    }
    fields.iter().all(|field| list(term, field).starts_with(&list(old, field)))
}
