//! Pods of controllers: termination time, creation from a template, and the order of deletion.

use std::cmp::Reverse;

use api::view::{Pod, condition};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Object, Value, value};

/// Annotation with the cost of deleting a pod; cheaper pods are deleted first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Returns the termination time: that of the last container, or else the last transition of the Ready condition.
pub fn finish_time(pod: &Value) -> Option<Time> {
    let time = |text: Option<&str>| text.and_then(|text| Time::parse(text).ok());
    let lists = ["initContainerStatuses", "containerStatuses"].map(|field| pod.at(&["status", field]));
    let statuses = lists.into_iter().flatten().filter_map(Value::as_array).flatten();
    let last = statuses.filter_map(|status| time(status.str_at(&["state", "terminated", "finishedAt"]))).max();
    last.or_else(|| time(condition(pod, "Ready").and_then(|ready| ready.str_at(&["lastTransitionTime"]))))
        .or_else(|| Meta::of(pod).deletion_timestamp())
        .or_else(|| Meta::of(pod).creation_timestamp())
}

/// Returns a pod from a workload's template, with name and owner, not bound to a node.
pub fn from_template(template: &Value, namespace: &str, name: &str, prefix: &str, owner: Value) -> Value {
    let of_template = Meta::from_metadata(template.get("metadata").unwrap_or(&Value::Null));
    let mut metadata = Object::new();
    metadata.insert("namespace", namespace);
    metadata.insert("name", name);
    metadata.insert("generateName", prefix);
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = of_template.value(field) {
            metadata.insert(field, value.clone());
        }
    }
    metadata.insert("ownerReferences", vec![owner]);
    let spec = template.get("spec").cloned().unwrap_or_else(Value::object);
    value!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// Returns the sort key for scaling down: pods with the smallest key are deleted first. `rank` is the number of related
/// pods on the same node.
///
/// The order is: not bound, not started, not ready, low deletion cost, many related pods on the node, recently ready,
/// recently created. Ages with the same binary logarithm are equal, and UIDs decide then. An exact order would always
/// delete pods of the same node or zone.
// DEVIATION: of pods with similar ready times the one with more restarts is deleted first; upstream compares UIDs
// before that, which is not a total order.
pub fn deletion_key(pod: &Value, rank: usize, now: Time) -> impl Ord + use<'_> {
    let started = match Pod(pod).phase() {
        "Unknown" => 1,
        "Running" => 2,
        // Pending. Upstream's table has no other phases, and missing entries count as zero.
        _ => 0,
    };
    let age = |since: Option<Time>| {
        since.map(|time| u64::try_from(now.since(time).nanos()).ok().filter(|nanos| *nanos > 0).map(u64::ilog2))
    };
    let ready_for = if Pod(pod).is_ready() { age(Pod(pod).ready_since()) } else { None };
    let meta = Meta::of(pod);
    (
        (!Pod(pod).node_name().is_empty(), started, Pod(pod).is_ready(), deletion_cost(pod), Reverse(rank), ready_for),
        (Reverse(restarts(pod)), age(meta.creation_timestamp()), meta.uid(), meta.name()),
    )
}

fn deletion_cost(pod: &Value) -> i32 {
    Meta::of(pod).annotation(DELETION_COST).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn restarts(pod: &Value) -> i64 {
    let statuses = pod.list_at(&["status", "containerStatuses"]);
    statuses.iter().filter_map(|status| status.get("restartCount")?.as_int()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_unix(100_000, 0);

    /// Parses `name node phase ready-seconds-ago|- cost restarts`.
    fn pod(text: &str) -> Value {
        let part: Vec<&str> = text.split(' ').collect();
        let mut pod = value!({"metadata": {"name": (part[0]), "uid": (part[0]), "annotations": {},
                "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {}, "status": {"phase": (part[2]), "containerStatuses": [{"restartCount": (part[5].parse::<i64>().unwrap())}]}});
        if part[1] != "-" {
            pod.get_mut("spec").unwrap().as_object_mut().unwrap().insert("nodeName", part[1]);
        }
        if let Ok(ago) = part[3].parse::<i64>() {
            let since = Time::from_unix(100_000 - ago, 0).to_string();
            let conditions = value!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
            pod.get_mut("status").unwrap().as_object_mut().unwrap().insert("conditions", conditions);
        }
        let mut meta = apimachinery::meta::MetaMut::of(&mut pod).unwrap();
        meta.set_annotation(DELETION_COST, part[4]);
        pod
    }

    #[test]
    fn deletion_order_prefers_the_least_useful_pod() {
        let check = |first: &str, then: &str, ranks: (usize, usize)| {
            let (a, b) = (pod(first), pod(then));
            assert!(deletion_key(&a, ranks.0, NOW) < deletion_key(&b, ranks.1, NOW), "{first} before {then}");
        };
        check("a - Running 9 9 0", "b n Pending - 0 0", (0, 0));
        check("a n Pending - 9 0", "b n Running - 0 0", (0, 0));
        check("a n Running - 9 0", "b n Running 9 0 0", (0, 0));
        check("a n Running 9000 1 0", "b n Running 9 2 0", (0, 0));
        check("a n Running 9000 x 0", "b n Running 9 1 0", (0, 0));
        check("a n Running 9000 0 0", "b n Running 9 0 0", (2, 1));
        check("a n Running 9 0 0", "b n Running 9000 0 9", (1, 1));
        check("a n Running - 0 3", "b n Running - 0 1", (1, 1));
        // 9 and 10 seconds have the same binary logarithm: restarts decide, then the UID.
        check("b n Running 10 0 1", "a n Running 9 0 0", (0, 0));
        check("a n Running 10 0 0", "b n Running 9 0 0", (0, 0));
    }
}
