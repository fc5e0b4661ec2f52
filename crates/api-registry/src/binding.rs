//! Pod binding: validates a Binding and applies it to the pod.

use apimachinery::meta::Meta;
use apimachinery::status::{GroupName, Status};
use apimachinery::time::Time;
use apimachinery::{At, Errors, Object, Value};

/// Validates a Binding.
pub fn validate(binding: &Value) -> Result<(), Status> {
    let mut errors = Errors::new();
    let root = At::root(binding);
    let target = root.get("target");
    let kind = target.get("kind");
    if !matches!(kind.str(), "" | "Node") {
        errors.push(kind.not_supported(&["Node", "<empty>"]));
    }
    let name = target.get("name");
    if name.is_empty() {
        errors.push(name.required(""));
    }
    let own = Meta::of(binding).name();
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(GroupName::new("", "Binding"), own, &errors)) }
}

/// Returns the pod with its node, the PodScheduled condition, and the annotations and labels of the binding.
pub fn apply(pod: &Value, binding: &Value, name: &str, now: Time) -> Result<Value, Status> {
    let conflict = |cause: String| Err(Status::conflict(GroupName::new("", "pods/binding"), name, cause));
    let meta = Meta::of(pod);
    let sent = Meta::of(binding);
    if !sent.uid().is_empty() && sent.uid() != meta.uid() {
        let (have, expected_uid) = (meta.uid(), sent.uid());
        return conflict(format!(
            "Precondition failed: UID in precondition: {expected_uid}, UID in object meta: {have}"
        ));
    }
    if meta.is_deleting() {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod.str_at(&["spec", "nodeName"]).filter(|node| !node.is_empty()) {
        return conflict(format!("pod {name} is already assigned to node {}", apimachinery::go::quote(node)));
    }
    let gates = pod.list_at(&["spec", "schedulingGates"]);
    if !gates.is_empty() {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut pod = pod.clone();
    let node = binding.text_at(&["target", "name"]);
    if let Some(Value::Object(spec)) = pod.get_mut("spec") {
        spec.insert("nodeName", node);
    }
    for field in ["annotations", "labels"] {
        copy(&mut pod, binding, field);
    }
    set_scheduled(&mut pod, now);
    Ok(pod)
}

fn copy(pod: &mut Value, binding: &Value, field: &str) {
    let Some(entries) = binding.at(&["metadata", field]).and_then(Value::as_object) else { return };
    let Some(Value::Object(metadata)) = pod.get_mut("metadata") else { return };
    if let Value::Object(into) = metadata.get_or_insert_with(field, Value::object) {
        for (key, value) in entries.iter() {
            into.insert(key, value.clone());
        }
    }
}

/// Sets the PodScheduled condition.
fn set_scheduled(pod: &mut Value, now: Time) {
    let Value::Object(fields) = pod else { return };
    let Value::Object(status) = fields.get_or_insert_with("status", Value::object) else { return };
    // A bound pod needs no nominated node.
    status.remove("nominatedNodeName");
    let conditions = status.get_or_insert_with("conditions", || Value::Array(Vec::new()));
    let Value::Array(conditions) = conditions else { return };
    conditions.retain(|condition| condition.str_at(&["type"]) != Some("PodScheduled"));
    let mut condition = Object::new();
    condition.insert("type", "PodScheduled");
    condition.insert("status", "True");
    condition.insert("lastProbeTime", Value::Null);
    condition.insert("lastTransitionTime", now.to_seconds().to_string().as_str());
    conditions.push(Value::Object(condition));
}
