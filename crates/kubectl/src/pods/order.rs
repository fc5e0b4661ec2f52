//! Orders in which one of several pods is chosen.

use std::cmp::Ordering;

use apimachinery::Value;

use super::{ContainerKind, containers, phase};

/// The pod that a command prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Running and ready pods first, the one that has been ready longest before the others.
    MostActiveFirst,
    /// As above; of pods that are equal, those with more restarts first.
    BestLogsFirst,
}

impl Order {
    pub fn sort(self, pods: &mut [Value]) {
        match self {
            Self::MostActiveFirst => pods.sort_by(|a, b| activity(b, a)),
            Self::BestLogsFirst => pods.sort_by(logging),
        }
    }
}

/// Orders pods for logs: pods with more log output first.
fn logging(a: &Value, b: &Value) -> Ordering {
    let rank = |pod: &Value| match phase(pod) {
        "Unknown" => 1,
        "Pending" => 2,
        _ => 0,
    };
    is_assigned(b)
        .cmp(&is_assigned(a))
        .then_with(|| rank(a).cmp(&rank(b)))
        .then_with(|| is_ready(b).cmp(&is_ready(a)))
        .then_with(|| earlier_first(ready_time(a), ready_time(b)))
        .then_with(|| restarts(b).cmp(&restarts(a)))
        .then_with(|| earlier_first(created(a), created(b)))
}

/// Orders pods by activity, the least active first.
fn activity(a: &Value, b: &Value) -> Ordering {
    let rank = |pod: &Value| match phase(pod) {
        "Unknown" => 1,
        "Running" => 2,
        _ => 0,
    };
    is_assigned(a)
        .cmp(&is_assigned(b))
        .then_with(|| rank(a).cmp(&rank(b)))
        .then_with(|| is_ready(a).cmp(&is_ready(b)))
        .then_with(|| (deletion(a).is_none()).cmp(&deletion(b).is_none()))
        .then_with(|| deletion(a).cmp(&deletion(b)))
        .then_with(|| earlier_first(ready_time(b), ready_time(a)))
        .then_with(|| restarts(b).cmp(&restarts(a)))
        .then_with(|| earlier_first(created(b), created(a)))
}

/// Orders times; a missing one is the last.
fn earlier_first(a: Option<&str>, b: Option<&str>) -> Ordering {
    (a.is_none(), a).cmp(&(b.is_none(), b))
}

fn is_assigned(pod: &Value) -> bool {
    pod.str_at(&["spec", "nodeName"]).is_some_and(|node| !node.is_empty())
}

fn ready_condition(pod: &Value) -> Option<&Value> {
    let conditions = pod.at(&["status", "conditions"])?.as_array()?;
    conditions.iter().find(|one| one.str_at(&["type"]) == Some("Ready") && one.str_at(&["status"]) == Some("True"))
}

fn is_ready(pod: &Value) -> bool {
    ready_condition(pod).is_some()
}

fn ready_time(pod: &Value) -> Option<&str> {
    ready_condition(pod)?.str_at(&["lastTransitionTime"])
}

fn created(pod: &Value) -> Option<&str> {
    pod.str_at(&["metadata", "creationTimestamp"])
}

fn deletion(pod: &Value) -> Option<&str> {
    pod.str_at(&["metadata", "deletionTimestamp"])
}

/// Returns the highest restart counts of the regular containers, and of the init containers that keep running.
fn restarts(pod: &Value) -> (i64, i64) {
    let highest = |field: &str, counts: &dyn Fn(&str) -> bool| {
        let statuses = pod.at(&["status", field]).and_then(Value::as_array).unwrap_or_default();
        let counted = statuses.iter().filter(|one| counts(one.str_at(&["name"]).unwrap_or_default()));
        counted.filter_map(|one| one.get("restartCount")?.as_int()).max().unwrap_or(0)
    };
    let is_sidecar = |name: &str| {
        containers(pod, ContainerKind::Init)
            .any(|one| one.name() == name && one.spec.str_at(&["restartPolicy"]) == Some("Always"))
    };
    (highest("containerStatuses", &|_| true), highest("initContainerStatuses", &is_sidecar))
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn pod(name: &str, node: &str, phase: &str, ready_since: Option<&str>, restarts: i64, created: &str) -> Value {
        let conditions = match ready_since {
            Some(time) => value!([{"type": "Ready", "status": "True", "lastTransitionTime": time}]),
            None => value!([]),
        };
        value!({
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {"nodeName": node},
            "status": {
                "phase": phase, "conditions": conditions,
                "containerStatuses": [{"name": "c", "restartCount": restarts}],
            },
        })
    }

    fn names(order: Order, mut pods: Vec<Value>) -> Vec<String> {
        order.sort(&mut pods);
        pods.iter().map(|pod| pod.str_at(&["metadata", "name"]).unwrap().to_owned()).collect()
    }

    #[test]
    fn running_and_ready_pods_come_first() {
        let pods = vec![
            pod("unassigned", "", "Pending", None, 0, "1"),
            pod("pending", "n", "Pending", None, 0, "1"),
            pod("unready", "n", "Running", None, 0, "1"),
            pod("young", "n", "Running", Some("5"), 0, "4"),
            pod("old", "n", "Running", Some("2"), 0, "1"),
            pod("restarted", "n", "Running", Some("5"), 3, "4"),
        ];
        let active = ["old", "young", "restarted", "unready", "pending", "unassigned"];
        assert_eq!(names(Order::MostActiveFirst, pods.clone()), active);
        let logging = ["old", "restarted", "young", "unready", "pending", "unassigned"];
        assert_eq!(names(Order::BestLogsFirst, pods), logging);
    }

    #[test]
    fn terminating_pod_is_less_active_than_others() {
        let mut going = pod("going", "n", "Running", Some("1"), 0, "1");
        if let Some(metadata) = going.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("deletionTimestamp", "9");
        }
        let staying = pod("staying", "n", "Running", Some("8"), 0, "8");
        assert_eq!(names(Order::MostActiveFirst, vec![going, staying]), ["staying", "going"]);
    }
}
