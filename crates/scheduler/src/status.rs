//! API writes of the scheduler: bindings, pod conditions and event messages.

use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Object, Value, value};

use crate::pod::Pod;

/// Maximum length of an event's note in bytes.
const NOTE_MAX: usize = 1024;

/// A pod condition set by the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `PodScheduled` or `DisruptionTarget`.
    pub kind: &'static str,
    /// `True` or `False`.
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

/// Change of `status.nominatedNodeName`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nomination {
    Keep,
    /// Empty to clear it.
    Set(apimachinery::Str),
}

/// Reason of the `PodScheduled` condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No node is feasible.
    Unschedulable,
    /// Scheduling failed and will be retried.
    SchedulerError,
}

impl Condition {
    /// Creates `PodScheduled=False`.
    pub fn waits(reason: Reason, message: &str) -> Self {
        let reason = match reason {
            Reason::Unschedulable => "Unschedulable",
            Reason::SchedulerError => "SchedulerError",
        };
        Self { kind: "PodScheduled", status: "False", reason, message: message.to_owned() }
    }

    /// Creates `DisruptionTarget=True` for a preemption victim.
    pub fn preempted(scheduler_name: &str) -> Self {
        let message = format!("{scheduler_name}: preempting to accommodate a higher priority pod");
        Self { kind: "DisruptionTarget", status: "True", reason: "PreemptionByScheduler", message }
    }
}

/// Returns the Binding object.
pub fn binding(pod: &Pod, node: &str) -> Value {
    value!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"namespace": (pod.class.namespace.as_str()), "name": (pod.name.as_str()), "uid": (pod.uid.as_str())},
        "target": {"kind": "Node", "name": node},
    })
}

/// Returns the strategic merge patch of the status of `object`; `None` if nothing changes.
pub fn patch(object: &Value, condition: Option<&Condition>, nomination: &Nomination, now: Time) -> Option<Value> {
    let meta = Meta::of(object);
    let mut status = Object::new();
    if let Some(condition) = condition.and_then(|condition| changed(object, condition, now)) {
        status.insert("conditions", Value::Array(vec![condition]));
    }
    if let Nomination::Set(node) = nomination
        && object.text_at(&["status", "nominatedNodeName"]) != node
    {
        status.insert("nominatedNodeName", if node.is_empty() { Value::Null } else { node.as_str().into() });
    }
    (!status.is_empty()).then(|| value!({"metadata": {"uid": (meta.uid())}, "status": status}))
}

/// Truncates a message to the maximum length of an event's note.
pub fn note(message: &str) -> String {
    const SUFFIX: &str = " ...";
    if message.len() <= NOTE_MAX {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(NOTE_MAX - SUFFIX.len());
    format!("{}{SUFFIX}", &message[..end])
}

/// Returns the condition to write; `None` if it is set already.
fn changed(object: &Value, condition: &Condition, now: Time) -> Option<Value> {
    let conditions = object.list_at(&["status", "conditions"]);
    let old = conditions.iter().find(|old| old.str_at(&["type"]) == Some(condition.kind));
    let text = |field| old.and_then(|old| old.str_at(&[field])).unwrap_or_default();
    let same_status = text("status") == condition.status;
    if same_status && text("reason") == condition.reason && text("message") == condition.message {
        return None;
    }
    let since = if same_status && !text("lastTransitionTime").is_empty() {
        text("lastTransitionTime").to_owned()
    } else {
        now.to_seconds().to_string()
    };
    Some(value!({
        "type": (condition.kind), "status": (condition.status), "reason": (condition.reason),
        "message": (condition.message.as_str()), "lastProbeTime": null, "lastTransitionTime": since,
        "observedGeneration": (Meta::of(object).generation()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Time {
        Time::parse("2026-01-01T00:00:00Z").unwrap()
    }

    #[test]
    fn condition_is_written_once_and_keeps_its_transition_time() {
        let condition = Condition::waits(Reason::Unschedulable, "0/1 nodes are available.");
        let pod = value!({"metadata": {"uid": "u", "generation": 2}, "status": {}});
        let written = patch(&pod, Some(&condition), &Nomination::Keep, now()).unwrap();
        assert_eq!(written.str_at(&["metadata", "uid"]), Some("u"));
        let entry = written["status"]["conditions"][0].clone();
        assert_eq!(entry.str_at(&["lastTransitionTime"]), Some("2026-01-01T00:00:00Z"));
        assert_eq!(entry["observedGeneration"], 2.into());
        let pod = value!({"metadata": {"uid": "u", "generation": 2}, "status": {"conditions": [entry]}});
        assert_eq!(patch(&pod, Some(&condition), &Nomination::Keep, now()), None);
        let other = Condition { message: "other".to_owned(), ..condition };
        let later = Time::parse("2026-01-02T00:00:00Z").unwrap();
        let again = patch(&pod, Some(&other), &Nomination::Keep, later).unwrap();
        assert_eq!(again["status"]["conditions"][0].str_at(&["lastTransitionTime"]), Some("2026-01-01T00:00:00Z"));
    }

    #[test]
    fn nomination_is_written_only_if_it_differs() {
        let pod = value!({"metadata": {"uid": "u"}, "status": {"nominatedNodeName": "n"}});
        let check = |nomination: Nomination, expect: Option<Value>| {
            let got = patch(&pod, None, &nomination, now());
            assert_eq!(got.map(|patch| patch["status"]["nominatedNodeName"].clone()), expect);
        };
        check(Nomination::Keep, None);
        check(Nomination::Set("n".into()), None);
        check(Nomination::Set("m".into()), Some("m".into()));
        check(Nomination::Set("".into()), Some(Value::Null));
    }

    #[test]
    fn long_message_is_truncated_at_a_character_boundary() {
        assert_eq!(note("short"), "short");
        let long = note(&"ä".repeat(600));
        assert!(long.len() <= NOTE_MAX && long.ends_with("ä ..."));
    }
}
