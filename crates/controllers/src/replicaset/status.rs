//! The status of a ReplicaSet, as a function of its pods.

use machinery::meta::Meta;
use machinery::time::Time;
use machinery::{Object, Value, value};
use reconcile::{Action, Refusal};

use super::{Kind, replicas};
use crate::{condition, pod};

/// What to write, and when to look again because a pod will count as available by then.
pub struct Status {
    pub update: Option<Action>,
    pub wake_at: Option<Time>,
}

pub fn of<K: Kind>(set: &Value, owned: &[&Value], refusal: Option<&Refusal>, now: Time) -> Status {
    let active: Vec<&Value> = owned.iter().copied().filter(|pod| pod::is_active(pod)).collect();
    let min_ready = set.at(&["spec", "minReadySeconds"]).and_then(Value::as_int).unwrap_or(0);
    let ready_until: Vec<Time> = active.iter().filter_map(|pod| pod::available_at(pod, min_ready)).collect();
    let labels = set.at(&["spec", "template", "metadata", "labels"]).and_then(Value::as_object);
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let counted = [
        ("fullyLabeledReplicas", count(active.iter().filter(|pod| has_labels(pod, labels)).count())),
        ("readyReplicas", count(active.iter().filter(|pod| pod::is_ready(pod)).count())),
        ("availableReplicas", count(ready_until.iter().filter(|at| **at <= now).count())),
        ("observedGeneration", Meta::of(set).generation()),
    ];
    let mut status = Object::new();
    status.insert("replicas", count(active.len()));
    // Go leaves out what is zero, but not these two.
    if K::TELLS_TERMINATING {
        status.insert("terminatingReplicas", count(owned.iter().filter(|pod| pod::is_terminating(pod)).count()));
    }
    for (field, number) in counted.into_iter().filter(|(_, number)| *number != 0) {
        status.insert(field, number);
    }
    let conditions = conditions(set, active.len(), refusal, now);
    if !conditions.is_empty() {
        status.insert("conditions", conditions);
    }
    let status = Value::Object(status);
    let update = (set.get("status") != Some(&status)).then(|| {
        let mut object = set.clone();
        object.as_object_mut().expect("an object of a cache is one").insert("status", status);
        Action::UpdateStatus { resource: K::RESOURCE.clone(), object }
    });
    Status { update, wake_at: ready_until.into_iter().filter(|at| *at > now).min() }
}

/// Says that pods could not be made or deleted for as long as that is so.
fn conditions(set: &Value, active: usize, refusal: Option<&Refusal>, now: Time) -> Vec<Value> {
    let mut list = set.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default().to_vec();
    match refusal.filter(|refusal| refusal.writes == "pods") {
        Some(refusal) if condition::in_list(&list, "ReplicaFailure").is_none() => {
            let missing = usize::try_from(replicas(set)).is_ok_and(|wanted| active < wanted);
            let reason = if missing { "FailedCreate" } else { "FailedDelete" };
            condition::set(
                &mut list,
                value!({"type": "ReplicaFailure", "status": "True", "reason": reason,
                    "message": (refusal.message.as_str()), "lastTransitionTime": (now.to_string())}),
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
