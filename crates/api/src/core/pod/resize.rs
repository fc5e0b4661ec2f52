//! The pod subresource `resize`: in-place change of CPU and memory.

use apimachinery::{At, Errors, Object, Value};

use super::super::object_meta;
use super::prepare::keep_metadata;
use super::update::nowhere;
use crate::field_rules::{keep, raise_generation};
use crate::view::{CONFIG_MIRROR as MIRROR, Pod};

const CPU_AND_MEMORY: [&str; 2] = ["cpu", "memory"];

/// Restores everything except resources and resize policies. Validation rejects containers that do not match.
pub(super) fn prepare(object: &mut Value, old: &Value) {
    let count = |pod: &Value, field: &str| pod.at(&["spec", field]).and_then(Value::as_array).map_or(0, <[Value]>::len);
    if ["containers", "initContainers"].iter().any(|field| count(object, field) != count(old, field)) {
        raise_generation(object, old, &["spec"]);
        return;
    }
    let spec = object.get("spec").cloned().unwrap_or_default();
    keep(object, old, "spec");
    keep(object, old, "status");
    keep_metadata(object, old);
    if let Some(target) = object.get_mut("spec") {
        keep(target, &spec, "resources");
        for field in ["containers", "initContainers"] {
            merge(target, &spec, field);
        }
    }
    raise_generation(object, old, &["spec"]);
}

pub(super) fn validate(object: &Value, old: &Value, errors: &mut Errors) {
    if old.at(&["metadata", "annotations", MIRROR]).is_some() {
        errors.clear();
        errors.push(nowhere("static pods cannot be resized"));
        return;
    }
    if old.str_at(&["spec", "os", "name"]) == Some("windows") {
        errors.clear();
        errors.push(nowhere("windows pods cannot be resized"));
        return;
    }
    object_meta::updated(object, old, errors);
    object_meta::validate_as_new(object, errors);
    super::validate(object, errors);
    let (root, before) = (At::root(object), At::root(old));
    let (spec, old_spec) = (root.get("spec"), before.get("spec"));
    if Pod(old).qos_class() != Pod(object).pod_spec().qos_class() {
        let qos_class = object.text_at(&["status", "qosClass"]);
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.push(apimachinery::field::Error::invalid(spec.path(), qos_class, detail));
    }
    if !is_supported(old) {
        errors.push(spec.forbidden("Pod running on node without support for resize"));
    }
    let mut masked = spec.value().clone();
    pod_level(&mut masked, &spec, &old_spec, errors);
    if !same_containers(&spec, &old_spec, errors) {
        return;
    }
    for field in ["initContainers", "containers"] {
        let (now, before) = (spec.get(field), old_spec.get(field));
        for (container, before) in now.items().zip(before.list()) {
            validate_not_removed(&container.get("resources"), &before["resources"], "", errors);
        }
    }
    containers(&mut masked, &spec, &old_spec, errors);
    if errors.is_empty() && masked != *old_spec.value() {
        errors.push(spec.forbidden("only cpu and memory resources are mutable"));
    }
}

/// Copies resources and resize policies from `new`. If container names differ, `target` gets the new containers, which
/// validation rejects.
fn merge(target: &mut Value, new: &Value, field: &str) {
    let desired = new.get(field).and_then(Value::as_array).unwrap_or_default();
    let Some(containers) = target.get_mut(field).and_then(Value::as_array_mut) else { return };
    if containers.iter().zip(desired).any(|(old, new)| old.get("name") != new.get("name")) {
        *containers = desired.to_vec();
        return;
    }
    for (container, desired) in containers.iter_mut().zip(desired) {
        keep(container, desired, "resources");
        keep(container, desired, "resizePolicy");
    }
}

/// Whether the node supports resize: it reports the resources of running containers.
fn is_supported(pod: &Value) -> bool {
    let statuses = pod.list_at(&["status", "containerStatuses"]);
    let running = statuses.iter().find(|status| status.at(&["state", "running"]).is_some_and(|it| !it.is_null()));
    running.is_none_or(|status| status.get("resources").is_some_and(|it| !it.is_null()))
}

fn pod_level(masked: &mut Value, spec: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let (now, before) = (spec.get("resources"), old.get("resources"));
    let is_set = |resources: &At<'_>| !resources.get("requests").is_empty() || !resources.get("limits").is_empty();
    if !is_set(&now) && !is_set(&before) {
        return;
    }
    if before.is_present() && now.is_absent() {
        errors.push(now.forbidden("pod-level resources cannot be removed"));
        return;
    }
    if before.is_present() {
        validate_not_removed(&now, before.value(), "pod-level ", errors);
    }
    if let Some(resources) = masked.get_mut("resources") {
        mask(resources, before.value());
        if before.is_absent() && resources.as_object().is_some_and(Object::is_empty) {
            keep(masked, old.value(), "resources");
        }
    }
    if masked.get("resources") != old.value().get("resources") {
        errors.push(spec.forbidden("only cpu and memory resources are mutable at pod-level"));
    }
}

fn same_containers(spec: &At<'_>, old: &At<'_>, errors: &mut Errors) -> bool {
    let before = errors.len();
    for field in ["containers", "initContainers"] {
        let (now, was) = (spec.get(field), old.get(field));
        if now.len() != was.len() {
            errors.push(now.forbidden(format!("{field} may not be added or removed on resize")));
            continue;
        }
        for (container, was) in now.items().zip(was.list()) {
            let name = container.get("name");
            if name.str() != was.text_at(&["name"]) {
                errors.push(name.forbidden(format!("{field} may not be renamed or reordered on resize")));
            }
        }
    }
    errors.len() == before
}

/// Requests and limits can be changed but not removed.
fn validate_not_removed(now: &At<'_>, old: &Value, prefix: &str, errors: &mut Errors) {
    for field in ["requests", "limits"] {
        let mut names = old.get(field).and_then(Value::as_object).into_iter().flat_map(Object::keys);
        if names.any(|name| now.value().at(&[field, name]).is_none()) {
            errors.push(now.get(field).forbidden(format!("{prefix}resource {field} cannot be removed")));
        }
    }
}

fn containers(masked: &mut Value, spec: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    for field in ["containers", "initContainers"] {
        let was = old.value().get(field).and_then(Value::as_array).unwrap_or_default();
        let now = masked.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten();
        let list = spec.get(field);
        for ((container, was), at) in now.zip(was).zip(list.items()) {
            let changed = container != was;
            if let Some(Value::Object(container)) = Some(&mut *container) {
                let resources = container.get_or_insert_with("resources", Value::object);
                mask(resources, &was["resources"]);
                resources.as_object_mut().map(|resources| resources.remove("claims"));
            }
            let differs = container != was;
            if field == "containers" {
                if differs {
                    errors.push(spec.forbidden("only cpu and memory resources are mutable"));
                }
                continue;
            }
            if differs {
                let detail = "only cpu and memory resources for init or sidecar containers are mutable";
                errors.push(at.forbidden(detail));
            }
            let restarts = at.get("restartPolicy").str() == "Always";
            let policies = container.list_at(&["resizePolicy"]);
            if changed && !restarts {
                let restarting = policies.iter().filter(|it| it.str_at(&["restartPolicy"]) == Some("RestartContainer"));
                let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                errors.extend(restarting.map(|_| at.forbidden(detail)));
            }
        }
    }
}

/// Copies CPU and memory from `old`, so that remaining differences are other resources.
fn mask(resources: &mut Value, old: &Value) {
    let Some(resources) = resources.as_object_mut() else { return };
    for field in ["requests", "limits"] {
        let mut amounts = resources.get(field).and_then(Value::as_object).cloned().unwrap_or_default();
        for name in CPU_AND_MEMORY {
            match old.at(&[field, name]) {
                Some(amount) => amounts.insert(name, amount.clone()),
                None => amounts.remove(name),
            };
        }
        if amounts.is_empty() {
            resources.remove(field);
        } else {
            resources.insert(field, amounts);
        }
    }
}
