//! ReplicaSet status, computed from its pods.

use api::resources::PODS;
use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Object, Value, value};
use controller::{Action, Rejection};

use super::{Kind, replicas};
use crate::condition;

/// The status update, and the next time at which a pod becomes available.
pub(super) struct Status {
    pub update: Option<Action>,
    pub wake_at: Option<Time>,
}

pub(super) fn of<K: Kind>(set: &Value, owned: &[&Value], rejection: Option<&Rejection>, now: Time) -> Status {
    let counts = Counts::of(set, owned, now);
    let counted = [
        ("fullyLabeledReplicas", counts.labeled),
        ("readyReplicas", counts.ready),
        ("availableReplicas", counts.available),
        ("observedGeneration", Meta::of(set).generation()),
    ];
    let mut status = Object::new();
    status.insert("replicas", counts.active);
    // Go omits zero fields, except these two.
    if K::REPORTS_TERMINATING {
        status.insert("terminatingReplicas", counts.terminating);
    }
    for (field, number) in counted.into_iter().filter(|(_, number)| *number != 0) {
        status.insert(field, number);
    }
    let conditions = conditions(set, counts.active, rejection, now);
    if !conditions.is_empty() {
        status.insert("conditions", conditions);
    }
    let status = Value::Object(status);
    let update = (set.get("status") != Some(&status)).then(|| {
        let mut object = set.clone();
        object.as_object_mut().expect("cached objects are JSON objects").insert("status", status);
        Action::UpdateStatus { resource: K::RESOURCE.clone(), object }
    });
    Status { update, wake_at: counts.next_available }
}

/// The replica counts of the status.
#[derive(Default)]
struct Counts {
    active: i64,
    labeled: i64,
    ready: i64,
    available: i64,
    terminating: i64,
    /// The time at which the next ready pod becomes available.
    next_available: Option<Time>,
}

impl Counts {
    /// Counts in a single pass: there may be thousands of pods, and every pod change triggers it.
    fn of(set: &Value, owned: &[&Value], now: Time) -> Self {
        let min_ready = set.int_at(&["spec", "minReadySeconds"]).unwrap_or(0);
        let labels = set.at(&["spec", "template", "metadata", "labels"]).and_then(Value::as_object);
        let mut counts = Self::default();
        for pod in owned {
            if !Pod(pod).is_active() {
                counts.terminating += i64::from(Pod(pod).is_terminating());
                continue;
            }
            counts.active += 1;
            counts.labeled += i64::from(has_labels(pod, labels));
            if !Pod(pod).is_ready() {
                continue;
            }
            counts.ready += 1;
            match Pod(pod).available_at(min_ready) {
                Some(at) if at <= now => counts.available += 1,
                Some(at) => counts.next_available = Some(counts.next_available.map_or(at, |next| next.min(at))),
                None => {}
            }
        }
        counts
    }
}

/// Sets the ReplicaFailure condition while the API server rejects creations or deletions.
fn conditions(set: &Value, active: i64, rejection: Option<&Rejection>, now: Time) -> Vec<Value> {
    let mut list = set.list_at(&["status", "conditions"]).to_vec();
    match rejection.filter(|rejection| rejection.is_of(PODS)) {
        Some(rejection) if condition::in_list(&list, "ReplicaFailure").is_none() => {
            let missing = active < replicas(set);
            let reason = if missing { "FailedCreate" } else { "FailedDelete" };
            condition::set(
                &mut list,
                value!({"type": "ReplicaFailure", "status": "True", "reason": reason,
                    "message": (rejection.message.as_str()), "lastTransitionTime": (now.to_string())}),
            );
        }
        Some(_) => {}
        None => condition::remove(&mut list, "ReplicaFailure"),
    }
    list
}

fn has_labels(pod: &Value, labels: Option<&Object>) -> bool {
    let has = Meta::of(pod);
    labels.is_none_or(|labels| labels.iter().all(|(key, value)| has.label(key) == value.as_str()))
}
