//! Preparation of pod writes: defaulting, and fields that a subresource may not change.

use apimachinery::meta::MetaMut;
use apimachinery::time::Time;
use apimachinery::{At, Object, Value, value};

use super::super::pod_spec;
use crate::field_rules::{items_mut, keep, raise_generation, start_generation};
use crate::view::PodSpec;

/// Defaults a pod and synchronizes fields that have a deprecated duplicate.
pub(super) fn default(object: &mut Value) {
    let Some(pod) = object.as_object_mut() else { return };
    let spec = pod.get_or_insert_with("spec", Value::object);
    if spec.is_null() {
        *spec = Value::object();
    }
    pod_spec::default(spec);
    pod_spec::default_pod(spec);
    if let Some(Value::Object(status)) = pod.get_mut("status") {
        addresses(status);
    }
    pod_spec::default_metadata(object);
}

/// Prepares a pod for creation.
pub(super) fn create(object: &mut Value, now: Time) {
    start_generation(object);
    let spec = object.get("spec").unwrap_or(&Value::Null);
    // Upstream computes the QoS class before it clears the status, so a class sent by the client is kept.
    let sent = object.str_at(&["status", "qosClass"]).filter(|class| !class.is_empty());
    let class = sent.unwrap_or(PodSpec(spec).qos_class().as_str());
    let mut status = value!({"phase": "Pending", "qosClass": class});
    if spec.get("schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty())
        && let Value::Object(status) = &mut status
    {
        let scheduling_gated = value!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": (now.to_seconds().to_string())
        });
        status.insert("conditions", vec![scheduling_gated]);
    }
    let Some(pod) = object.as_object_mut() else { return };
    pod.insert("status", status);
    let labels = pod.get("metadata").and_then(|it| it.get("labels")).and_then(Value::as_object).cloned();
    let annotations = pod.get("metadata").and_then(|it| it.get("annotations")).cloned().unwrap_or_default();
    if let Some(spec) = pod.get_mut("spec") {
        label_keys(spec, &labels.unwrap_or_default());
        app_armor(spec, &annotations);
    }
}

/// Prepares a pod that replaces `old`: this write does not change the status.
pub(super) fn update(object: &mut Value, old: &Value) {
    keep(object, old, "status");
    raise_generation(object, old, &["spec"]);
}

/// Restores everything except the ephemeral containers.
pub(super) fn ephemeral_containers(object: &mut Value, old: &Value) {
    let added =
        object.get_mut("spec").and_then(Value::as_object_mut).and_then(|spec| spec.remove("ephemeralContainers"));
    keep(object, old, "spec");
    keep(object, old, "status");
    keep_metadata(object, old);
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("ephemeralContainers");
        if let Some(added) = added {
            spec.insert("ephemeralContainers", added);
        }
    }
    raise_generation(object, old, &["spec"]);
}

/// Restores the metadata that subresource writes may not change.
pub(super) fn keep_metadata(object: &mut Value, old: &Value) {
    let Some(mut metadata) = MetaMut::of(object) else { return };
    for field in ["deletionTimestamp", "generation", "labels", "annotations", "finalizers", "ownerReferences"] {
        match old.at(&["metadata", field]) {
            Some(value) => metadata.set(field, value.clone()),
            None => {
                metadata.remove(field);
            }
        }
    }
}

/// Synchronizes `podIP` and `podIPs`; the singular field wins, because old kubelets set only that one.
fn addresses(status: &mut Object) {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let lone = text(status.get("podIP"));
    let first = text(status.get("podIPs").map(|list| &list[0]["ip"]));
    if !lone.is_empty() && lone != first {
        status.insert("podIPs", vec![value!({"ip": lone})]);
    } else if lone.is_empty() && !first.is_empty() {
        status.insert("podIP", first);
    }
}

/// Adds a selector requirement for each of `matchLabelKeys` and `mismatchLabelKeys`, with the pod's own label values.
fn label_keys(spec: &mut Value, labels: &Object) {
    if let Some(affinity) = spec.get_mut("affinity") {
        for pods in ["podAffinity", "podAntiAffinity"] {
            let Some(pods) = affinity.get_mut(pods) else { continue };
            for weighted in items_mut(pods, "preferredDuringSchedulingIgnoredDuringExecution") {
                if let Some(term) = weighted.get_mut("podAffinityTerm") {
                    apply_label_keys(term, labels);
                }
            }
            items_mut(pods, "requiredDuringSchedulingIgnoredDuringExecution")
                .for_each(|term| apply_label_keys(term, labels));
        }
    }
    items_mut(spec, "topologySpreadConstraints").for_each(|constraint| apply_label_keys(constraint, labels));
}

fn apply_label_keys(term: &mut Value, labels: &Object) {
    let keys = |field: &str| term.get(field).and_then(Value::as_array).unwrap_or_default().iter();
    let requirement = |key: &Value, operator: &str| {
        let value = labels.get(key.as_str()?)?;
        Some(value!({"key": (key.clone()), "operator": operator, "values": [(value.clone())]}))
    };
    let matching = keys("matchLabelKeys").filter_map(|key| requirement(key, "In"));
    let new: Vec<_> = matching.chain(keys("mismatchLabelKeys").filter_map(|key| requirement(key, "NotIn"))).collect();
    let Some(Value::Object(selector)) = term.get_mut("labelSelector") else { return };
    if new.is_empty() {
        return;
    }
    if let Value::Array(expressions) = selector.get_or_insert_with("matchExpressions", || Value::Array(Vec::new())) {
        expressions.extend(new);
    }
}

/// Sets the AppArmor fields from the deprecated annotations.
fn app_armor(spec: &mut Value, annotations: &Value) {
    if spec.str_at(&["os", "name"]) == Some("windows") {
        return;
    }
    let of_pod = spec.at(&["securityContext", "appArmorProfile"]).cloned();
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items_mut(spec, field) {
            let name = container.text_at(&["name"]);
            let annotation = annotations.str_at(&[&format!("{}{name}", pod_spec::APP_ARMOR)]);
            let has_own = container.at(&["securityContext", "appArmorProfile"]).is_some_and(|it| !it.is_null());
            let Some(profile) = annotation.filter(|_| !has_own).and_then(pod_spec::app_armor_field) else { continue };
            let mut errors = Vec::new();
            pod_spec::validate_app_armor(&At::root(&profile), &mut errors);
            if !errors.is_empty() || of_pod.as_ref() == Some(&profile) {
                continue;
            }
            let Some(container) = container.as_object_mut() else { continue };
            if let Value::Object(context) = container.get_or_insert_with("securityContext", Value::object) {
                context.insert("appArmorProfile", profile);
            }
        }
    }
}
