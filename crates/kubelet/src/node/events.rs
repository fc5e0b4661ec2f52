//! Events of the node: kubelet start, condition changes and system OOM kills.

use apimachinery::{Key, Value};
use component_base::events::Recorder;
use controller::{EventType, Regarding};

/// Event recorder of one node.
#[derive(Clone)]
pub struct NodeEvents {
    recorder: Recorder,
    regarding: Regarding,
}

/// An event caused by a change of the Node object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeEvent {
    kind: EventType,
    reason: &'static str,
    message: String,
}

/// Event reasons of condition changes: condition type, new status, reason.
const CONDITIONS: &[(&str, &str, &str)] = &[
    ("MemoryPressure", "False", "NodeHasSufficientMemory"),
    ("MemoryPressure", "True", "NodeHasInsufficientMemory"),
    ("DiskPressure", "False", "NodeHasNoDiskPressure"),
    ("DiskPressure", "True", "NodeHasDiskPressure"),
    ("PIDPressure", "False", "NodeHasSufficientPID"),
    ("PIDPressure", "True", "NodeHasInsufficientPID"),
    ("Ready", "True", "NodeReady"),
    ("Ready", "False", "NodeNotReady"),
];

impl NodeEvents {
    /// Creates an event recorder for a node.
    pub fn new(recorder: Recorder, node: &str) -> Self {
        // As upstream's kubelet does, the name is used as UID, which is unknown before the node is registered.
        let regarding = Regarding {
            api_version: "v1".into(),
            kind: "Node".into(),
            key: Key::cluster(node),
            uid: node.into(),
            ..Regarding::default()
        };
        Self { recorder, regarding }
    }

    /// Records an event of the node.
    pub fn record(&self, kind: EventType, reason: &str, message: &str) {
        self.recorder.record(&self.regarding, kind, reason, message);
    }

    /// Records the events of a change of the Node object. A new node has no previous state.
    pub fn record_changes(&self, before: &Value, after: &Value) {
        for event in changes(&self.regarding.key.name, before, after) {
            self.record(event.kind, event.reason, &event.message);
        }
    }
}

fn changes(name: &str, before: &Value, after: &Value) -> Vec<NodeEvent> {
    let status_now = |reason: &'static str| NodeEvent {
        kind: EventType::Normal,
        reason,
        message: format!("Node {name} status is now: {reason}"),
    };
    let mut events: Vec<NodeEvent> = Vec::new();
    let boot = |node: &Value| node.str_at(&["status", "nodeInfo", "bootID"]).unwrap_or_default().to_owned();
    if !boot(before).is_empty() && boot(before) != boot(after) {
        let message = format!("Node {name} has been rebooted, boot id: {}", boot(after));
        events.push(NodeEvent { kind: EventType::Warning, reason: "Rebooted", message });
    }
    let condition = |node: &Value, kind: &str| -> Option<String> {
        let list = node["status"]["conditions"].as_array().unwrap_or_default();
        let found = list.iter().find(|one| one.str_at(&["type"]) == Some(kind))?;
        found.str_at(&["status"]).map(str::to_owned)
    };
    let changed = CONDITIONS.iter().filter(|(kind, status, _)| {
        condition(after, kind).as_deref() == Some(*status) && condition(before, kind).as_deref() != Some(*status)
    });
    events.extend(changed.map(|(_, _, reason)| status_now(reason)));
    let is_unschedulable = |node: &Value| node["spec"]["unschedulable"].as_bool().unwrap_or(false);
    match (before.is_null(), is_unschedulable(before), is_unschedulable(after)) {
        (false, false, true) => events.push(status_now("NodeNotSchedulable")),
        (false, true, false) => events.push(status_now("NodeSchedulable")),
        _ => {}
    }
    events
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    /// Builds a node from its conditions (`M` MemoryPressure, `D` DiskPressure, `R` Ready; lower case for False) and
    /// its boot ID.
    fn node(conditions: &str, boot: &str, unschedulable: bool) -> Value {
        let condition = |letter: char| {
            let kind = match letter.to_ascii_uppercase() {
                'M' => "MemoryPressure",
                'D' => "DiskPressure",
                _ => "Ready",
            };
            value!({"type": kind, "status": (if letter.is_ascii_uppercase() { "True" } else { "False" })})
        };
        let conditions: Vec<Value> = conditions.chars().map(condition).collect();
        value!({"spec": {"unschedulable": unschedulable}, "status": {"conditions": conditions, "nodeInfo": {"bootID": boot}}})
    }

    #[test]
    fn only_condition_changes_are_recorded_as_events() {
        let check = |before: &Value, after: &Value, expect: &[&str]| {
            let found = changes("n", before, after);
            let reasons: Vec<&str> = found.iter().map(|event| event.reason).collect();
            assert_eq!(reasons, expect, "{before:?} {after:?}");
        };
        let idle = node("mdR", "a", false);
        check(&Value::Null, &idle, &["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeReady"]);
        check(&idle, &idle, &[]);
        check(&idle, &node("Mdr", "a", false), &["NodeHasInsufficientMemory", "NodeNotReady"]);
        check(&node("mDR", "a", false), &idle, &["NodeHasNoDiskPressure"]);
        check(&idle, &node("mdR", "b", false), &["Rebooted"]);
        check(&idle, &node("mdR", "a", true), &["NodeNotSchedulable"]);
        check(&node("mdR", "a", true), &idle, &["NodeSchedulable"]);
        check(&Value::Null, &node("", "a", true), &[]);
        let message = &changes("n", &idle, &node("mdr", "a", false))[0].message;
        assert_eq!(message, "Node n status is now: NodeNotReady");
    }
}
