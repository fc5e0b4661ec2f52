//! DaemonSet pods: node affinity to one node, and the default tolerations of daemon pods.

use api::view::{Pod, Taint, Toleration};
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Value, value};
use controller::{Action, EventOnResult, Regarding, kinds};

use crate::{adoption, names, pod};

/// The label with the hash of the pod's template.
pub(super) const HASH: &str = "controller-revision-hash";
/// The label with the generation of the pod's template, older than the hash label.
pub(super) const GENERATION: &str = "pod-template-generation";

/// Tolerations that every daemon pod gets in addition to its template's.
const TOLERATED: &[(&str, &str)] = &[
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Returns the pod spec of the DaemonSet with its default tolerations, without node affinity.
pub(super) fn spec(set: &Value) -> Value {
    let mut spec = set.at(&["spec", "template", "spec"]).cloned().unwrap_or_else(Value::object);
    let on_host = spec.get("hostNetwork").and_then(Value::as_bool) == Some(true);
    let network = on_host.then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    let Some(object) = spec.as_object_mut() else { return spec };
    let tolerations = object.get_or_insert_with("tolerations", || Value::Array(Vec::new()));
    if let Some(list) = tolerations.as_array_mut() {
        for (key, effect) in TOLERATED.iter().copied().chain(network) {
            let added = value!({"key": key, "operator": "Exists", "effect": effect});
            // An equal toleration of the template is kept unchanged.
            let is_same = |have: &Value| {
                let have = Toleration::of(have);
                have.key == key && have.effect == effect && have.tolerates(Taint { key, value: "", effect })
            };
            match list.iter_mut().find(|have| is_same(have)) {
                Some(have) => *have = added,
                None => list.push(added),
            }
        }
    }
    spec
}

/// Returns the node of a pod: the bound one, or else the one of its affinity.
pub(super) fn target(pod: &Value) -> &str {
    if !Pod(pod).node_name().is_empty() {
        return Pod(pod).node_name();
    }
    let required =
        &["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"];
    let terms = pod.list_at(required);
    let fields = terms.iter().flat_map(|term| term.list_at(&["matchFields"]));
    let by_name =
        |field: &&Value| field.str_at(&["key"]) == Some("metadata.name") && field.str_at(&["operator"]) == Some("In");
    let value = fields.into_iter().find(by_name).and_then(|field| field.get("values")?.as_array()?.first()?.as_str());
    value.unwrap_or_default()
}

/// Returns the template generation, which the API server counts.
pub(super) fn template_generation(set: &Value) -> Option<&str> {
    Meta::of(set).annotation("deprecated.daemonset.template.generation")
}

/// Creates a pod for each of the nodes.
pub(super) fn create(set: &Value, hash: &str, nodes: &[&str], owned: &[&Value]) -> Vec<Action> {
    let prefix = format!("{}-", Meta::of(set).name());
    let template = value!({"metadata": (set.at(&["spec", "template", "metadata"]).cloned().unwrap_or_default()), "spec": (spec(set))});
    let names = names::fresh(set, &prefix, owned, nodes.len());
    let make = |(node, name): (&&str, &String)| {
        let mut object =
            pod::from_template(&template, Meta::of(set).namespace(), name, &prefix, adoption::reference(set));
        if let Some(mut meta) = MetaMut::of(&mut object) {
            meta.set_label(HASH, hash);
            if let Some(generation) = template_generation(set) {
                meta.set_label(GENERATION, generation);
            }
        }
        bind(&mut object, node);
        let result_event =
            new_result_event(set, "SuccessfulCreate", format!("Created pod: {name}"), "FailedCreate", "Error creating");
        Action::Create { resource: kinds::PODS.clone(), object, result_event }
    };
    nodes.iter().zip(&names).map(make).collect()
}

pub(super) fn delete(set: &Value, pod: &Value) -> Action {
    let mut action = Action::delete(&kinds::PODS, pod);
    if let Action::Delete { result_event, .. } = &mut action {
        let message = format!("Deleted pod: {}", Meta::of(pod).name());
        *result_event = new_result_event(set, "SuccessfulDelete", message, "FailedDelete", "Error deleting");
    }
    action
}

/// Restricts the pod to one node by affinity. The scheduler still binds it, because it knows the free resources.
fn bind(pod: &mut Value, node: &str) {
    let terms = value!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let affinity = spec.get_or_insert_with("affinity", Value::object);
    let Some(affinity) = affinity.as_object_mut() else { return };
    if let Some(of_node) = affinity.get_or_insert_with("nodeAffinity", Value::object).as_object_mut() {
        of_node.insert("requiredDuringSchedulingIgnoredDuringExecution", value!({"nodeSelectorTerms": terms}));
    }
}

fn new_result_event(
    set: &Value,
    done_reason: &'static str,
    done_message: String,
    failed_reason: &'static str,
    failed_prefix: &'static str,
) -> Option<Box<EventOnResult>> {
    let regarding = Regarding::object(set);
    Some(Box::new(EventOnResult {
        regarding,
        done_reason,
        done_message,
        failed: Some((failed_reason, failed_prefix.into())),
    }))
}
