//! Lifecycle of a pod: terminal, active, terminating, ready and available.

use apimachinery::time::{Duration, Time};

use super::{Pod, condition, has_condition};

impl<'a> Pod<'a> {
    /// Returns the phase in the API server; empty if none.
    pub fn phase(self) -> &'a str {
        self.0.text_at(&["status", "phase"])
    }

    /// Returns the node name; empty if the pod is not bound.
    pub fn node_name(self) -> &'a str {
        self.spec().text_at(&["nodeName"])
    }

    /// Whether the phase is Succeeded or Failed.
    pub fn is_terminal(self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// Whether the pod has not terminated and is not being deleted.
    pub fn is_active(self) -> bool {
        !self.is_terminal() && !self.meta().is_deleting()
    }

    /// Whether the pod is being deleted and has not terminated.
    pub fn is_terminating(self) -> bool {
        !self.is_terminal() && self.meta().is_deleting()
    }

    /// Whether the Ready condition is True.
    pub fn is_ready(self) -> bool {
        has_condition(self.0, "Ready")
    }

    /// Returns the time at which a ready pod became ready.
    pub fn ready_since(self) -> Option<Time> {
        let ready = condition(self.0, "Ready").filter(|_| self.is_ready())?;
        Time::parse(ready.str_at(&["lastTransitionTime"])?).ok()
    }

    /// Returns the time at which a ready pod becomes available; `None` if it is not ready.
    pub fn available_at(self, min_ready_seconds: i64) -> Option<Time> {
        if min_ready_seconds <= 0 {
            // Without minReadySeconds a ready pod is available immediately.
            return self.is_ready().then_some(Time::from_unix(0, 0));
        }
        Some(self.ready_since()?.plus(Duration::from_seconds(min_ready_seconds)))
    }

    /// Whether the pod can be evicted regardless of disruption budgets: it is pending, terminal or being deleted.
    pub fn ignores_disruption_budgets(self) -> bool {
        self.phase() == "Pending" || !self.is_active()
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::{Value, value};

    use super::*;

    /// Parses `phase`, `deleting` and `ready`, which has the status and the second of its last transition.
    fn pod(text: &str) -> Value {
        let mut words = text.split(' ');
        let phase = words.next().unwrap();
        let deleted = if text.contains("deleting") { value!("2026-01-01T00:00:00Z") } else { Value::Null };
        let conditions: Vec<Value> = words
            .filter_map(|word| word.strip_prefix("ready="))
            .map(|ready| {
                let (status, seconds) = ready.split_once('@').unwrap();
                let since = Time::from_unix(seconds.parse().unwrap(), 0).to_string();
                value!({"type": "Ready", "status": status, "lastTransitionTime": since})
            })
            .collect();
        value!({"metadata": {"deletionTimestamp": deleted}, "status": {"phase": phase, "conditions": conditions}})
    }

    #[test]
    fn pod_is_active_terminating_or_terminal() {
        let check = |text: &str, expect: [bool; 4]| {
            let pod = pod(text);
            let pod = Pod(&pod);
            let found = [pod.is_active(), pod.is_terminating(), pod.is_terminal(), pod.ignores_disruption_budgets()];
            assert_eq!(found, expect, "{text}");
        };
        check("Pending", [true, false, false, true]);
        check("Running", [true, false, false, false]);
        check("Unknown", [true, false, false, false]);
        check("Succeeded", [false, false, true, true]);
        check("Failed", [false, false, true, true]);
        check("Running deleting", [false, true, false, true]);
        check("Failed deleting", [false, false, true, true]);
    }

    #[test]
    fn ready_pod_is_available_after_min_ready_seconds() {
        let check = |text: &str, min_ready_seconds: i64, expect: Option<i64>| {
            let found = Pod(&pod(text)).available_at(min_ready_seconds);
            assert_eq!(found, expect.map(|seconds| Time::from_unix(seconds, 0)), "{text} {min_ready_seconds}");
        };
        check("Running", 0, None);
        check("Running ready=False@100", 0, None);
        check("Running ready=Unknown@100", 30, None);
        check("Running ready=True@100", 0, Some(0));
        check("Running ready=True@100", 30, Some(130));
        // Only conditions count; controllers check the phase where it matters.
        check("Failed ready=True@100", 30, Some(130));
    }
}
