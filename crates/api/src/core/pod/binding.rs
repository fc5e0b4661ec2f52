//! The pod subresources `binding` and `eviction`: assignment to a node, and the preconditions of an eviction.

use apimachinery::field::Error;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::time::Time;
use apimachinery::{At, Errors, Object, Value, value};

use super::super::pod_spec::invalid_text;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    #[error("pod {0} is being deleted, cannot be assigned to a host")]
    Deleting(String),
    #[error("pod {pod} is already assigned to node {}", apimachinery::go::quote(.node))]
    Bound {
        pod: String,
        /// The node that the pod is already assigned to.
        node: String,
    },
    #[error("pod {0} has non-empty .spec.schedulingGates")]
    Gated(String),
}

pub fn validate(binding: &Value, errors: &mut Errors) {
    let root = At::root(binding);
    let target = root.get("target");
    let (kind, name) = (target.get("kind"), target.get("name"));
    if !kind.is_empty() && kind.str() != "Node" {
        errors.push(Error::not_supported(kind.path(), kind.str(), &["Node", "<empty>"]));
    }
    if name.is_empty() {
        errors.push(name.required(""));
    } else {
        let wrong = apimachinery::names::dns1123_subdomain(name.str());
        errors.extend(wrong.into_iter().map(|detail| invalid_text(&name, detail)));
    }
}

/// Assigns `pod` to the node of `binding` and merges the binding's annotations and labels.
pub fn bind(pod: &mut Value, binding: &Value, now: Time) -> Result<(), BindError> {
    let name = Meta::of(pod).name().to_owned();
    if Meta::of(pod).is_deleting() {
        return Err(BindError::Deleting(name));
    }
    if let Some(node) = pod.str_at(&["spec", "nodeName"]).filter(|node| !node.is_empty()) {
        return Err(BindError::Bound { pod: name, node: node.to_owned() });
    }
    if pod.at(&["spec", "schedulingGates"]).and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
        return Err(BindError::Gated(name));
    }
    let node = binding.text_at(&["target", "name"]);
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("nodeName", node);
    }
    if let Some(mut metadata) = MetaMut::of(pod) {
        for (key, text) in texts(binding, "annotations") {
            metadata.set_annotation(key, text);
        }
        for (key, text) in texts(binding, "labels") {
            metadata.set_label(key, text);
        }
    }
    if let Some(object) = pod.as_object_mut()
        && let Value::Object(status) = object.get_or_insert_with("status", Value::object)
    {
        status.remove("nominatedNodeName");
        scheduled(status, now);
    }
    Ok(())
}

fn texts<'a>(binding: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let entries = binding.at(&["metadata", field]).and_then(Value::as_object).into_iter().flat_map(Object::iter);
    entries.map(|(key, value)| (key, value.as_str().unwrap_or_default()))
}

fn scheduled(status: &mut Object, now: Time) {
    let condition = value!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": (now.to_seconds().to_string())
    });
    let Value::Array(conditions) = status.get_or_insert_with("conditions", || Value::Array(Vec::new())) else { return };
    match conditions.iter_mut().find(|condition| condition.str_at(&["type"]) == Some("PodScheduled")) {
        Some(found) => *found = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_unix(1_700_000_000, 0);

    #[test]
    fn pod_is_bound_once() {
        let binding = value!({"metadata": {"annotations": {"a": "1"}}, "target": {"name": "n1"}});
        let mut pod = value!({"metadata": {"name": "p"}, "spec": {}, "status": {"nominatedNodeName": "n2"}});
        bind(&mut pod, &binding, NOW).unwrap();
        assert_eq!(pod["spec"], value!({"nodeName": "n1"}));
        assert_eq!(pod["metadata"]["annotations"], value!({"a": "1"}));
        assert_eq!(pod["status"]["conditions"][0]["status"], value!("True"));
        assert_eq!(pod["status"]["nominatedNodeName"], Value::Null);
        let again = bind(&mut pod, &binding, NOW).unwrap_err();
        assert_eq!(again.to_string(), "pod p is already assigned to node \"n1\"");
    }

    #[test]
    fn pod_with_scheduling_gates_cannot_be_bound() {
        let mut pod = value!({"metadata": {"name": "p"}, "spec": {"schedulingGates": [{"name": "g"}]}});
        assert_eq!(bind(&mut pod, &value!({}), NOW), Err(BindError::Gated("p".to_owned())));
    }
}
