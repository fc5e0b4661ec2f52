//! NodeDeclaredFeatures: restricts a pod to nodes whose kubelet declares the features that the pod needs.

use apimachinery::{Str, Value};

use crate::framework::{Cycle, Event, Filter, Plugin, PreFilterResult, Rejection};
use crate::pod::Pod;
use crate::snapshot::{NodeId, Snapshot, Usage};

const REASON: &str = "node(s) didn't match Pod's required features";

/// Declared features that affect scheduling, each with the function that checks whether a pod spec needs it.
const FEATURES: &[(&str, Needs)] = &[
    ("RestartAllContainersOnContainerExits", restarts_all_containers),
    ("UserNamespacesHostNetworkSupport", maps_users_on_the_hosts_network),
];

/// Whether a pod spec needs a feature.
type Needs = fn(&Value) -> bool;

pub struct NodeDeclaredFeatures;

struct FeatureFilter<'a> {
    snapshot: &'a Snapshot,
    features: &'a [&'static str],
}

/// Returns the features that a pod spec needs.
pub fn needed(spec: &Value) -> Vec<&'static str> {
    FEATURES.iter().filter(|(_, is_needed)| is_needed(spec)).map(|(name, _)| *name).collect()
}

impl Plugin for NodeDeclaredFeatures {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatures"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> PreFilterResult<'a> {
        let features = &cycle.pod.features;
        if features.is_empty() {
            return PreFilterResult::Skip;
        }
        PreFilterResult::Run(Box::new(FeatureFilter { snapshot: cycle.snapshot, features }), None)
    }

    fn wakes(&self, pod: &Pod, event: &Event) -> bool {
        event.node_becomes(|node| declares_all(&node.features, &pod.features))
    }
}

impl Filter for FeatureFilter<'_> {
    fn check(&self, node: NodeId, _usage: &Usage) -> Option<Rejection> {
        let declared = &self.snapshot.offer(node).features;
        (!declares_all(declared, self.features)).then_some(Rejection::fixed(REASON))
    }
}

fn declares_all(declared: &[Str], needed: &[&str]) -> bool {
    needed.iter().all(|needed| declared.iter().any(|name| name == *needed))
}

fn restarts_all_containers(spec: &Value) -> bool {
    let containers = spec.list_at(&["containers"]).iter().chain(spec.list_at(&["initContainers"]));
    let mut rules = containers.flat_map(|container| container.list_at(&["restartPolicyRules"]));
    rules.any(|rule| rule.str_at(&["action"]) == Some("RestartAllContainers"))
}

fn maps_users_on_the_hosts_network(spec: &Value) -> bool {
    let is = |field: &str, value: bool| spec.get(field).and_then(Value::as_bool) == Some(value);
    is("hostNetwork", true) && is("hostUsers", false)
}
