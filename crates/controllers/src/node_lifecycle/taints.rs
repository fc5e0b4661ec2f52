//! Node taints derived from conditions and spec.unschedulable.

use apimachinery::time::Time;
use apimachinery::{Object, Value, value};
use controller::{Action, Patch, Preconditions, kinds};

use crate::condition;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Taints for conditions with status True.
const BY_CONDITION: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Whether an unhealthy node gets the NoExecute taint in addition to NoSchedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoExecutePolicy {
    /// The NoExecute taint may be added.
    Add,
    /// The NoExecute taint is not added now, because of the eviction rate or because the node is ready. An existing one
    /// stays.
    Keep,
    /// All zones are unhealthy: an existing NoExecute taint is removed.
    Remove,
}

/// Returns the time of the NoExecute taint for an unhealthy node; the outer `None` if there is no such taint.
pub(super) fn emptied_at(node: &Value) -> Option<Option<Time>> {
    let taint = node.list_at(&["spec", "taints"]).iter().find(|taint| {
        matches!(taint.text_at(&["key"]), NOT_READY | UNREACHABLE) && taint.text_at(&["effect"]) == "NoExecute"
    })?;
    Some(taint.str_at(&["timeAdded"]).and_then(|text| Time::parse(text).ok()))
}

/// Updates the taints that this controller manages.
pub(super) fn update(node: &Value, ready: &str, may_empty: NoExecutePolicy, now: Time) -> Option<Action> {
    let have = node.list_at(&["spec", "taints"]);
    let cause = match ready {
        "True" => None,
        "False" => Some(NOT_READY),
        _ => Some(UNREACHABLE),
    };
    let emptying = match may_empty {
        NoExecutePolicy::Add => true,
        // A changed cause, such as NotReady to Unreachable, keeps the NoExecute taint.
        NoExecutePolicy::Keep => emptied_at(node).is_some(),
        NoExecutePolicy::Remove => false,
    };
    let mut desired: Vec<(&str, &str)> = Vec::new();
    if node.is_true_at(&["spec", "unschedulable"]) {
        desired.push((UNSCHEDULABLE, "NoSchedule"));
    }
    for (kind, key) in BY_CONDITION {
        if condition::find(node, kind).is_some_and(|it| it.str_at(&["status"]) == Some("True")) {
            desired.push((key, "NoSchedule"));
        }
    }
    if let Some(cause) = cause {
        desired.push((cause, "NoSchedule"));
        if emptying {
            desired.push((cause, "NoExecute"));
        }
    }
    let is_managed = |taint: &Value| {
        let (key, effect) = (taint.text_at(&["key"]), taint.text_at(&["effect"]));
        match effect {
            "NoExecute" => matches!(key, NOT_READY | UNREACHABLE),
            "NoSchedule" => {
                matches!(key, NOT_READY | UNREACHABLE | UNSCHEDULABLE) || BY_CONDITION.iter().any(|(_, it)| *it == key)
            }
            _ => false,
        }
    };
    let is_desired = |taint: &Value| desired.contains(&(taint.text_at(&["key"]), taint.text_at(&["effect"])));
    let mut taints: Vec<Value> = have.iter().filter(|taint| !is_managed(taint) || is_desired(taint)).cloned().collect();
    for (key, effect) in desired {
        let there = |taint: &Value| (taint.text_at(&["key"]), taint.text_at(&["effect"])) == (key, effect);
        if !taints.iter().any(there) {
            let mut taint: Object = [("key", key), ("effect", effect)].into_iter().collect();
            taint.insert("timeAdded", now.to_seconds().to_string());
            taints.push(Value::Object(taint));
        }
    }
    (taints != have).then(|| patch(node, taints))
}

fn patch(node: &Value, taints: Vec<Value>) -> Action {
    let taints = if taints.is_empty() { Value::Null } else { Value::Array(taints) };
    Action::Patch {
        resource: kinds::NODES.clone(),
        key: apimachinery::Key::of(node),
        subresource: "",
        only_if: Preconditions::unchanged(node),
        patch: Patch::Merge(value!({"spec": {"taints": taints}})),
    }
}
