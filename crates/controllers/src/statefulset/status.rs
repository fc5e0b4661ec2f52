//! StatefulSet status, computed from its pods and revisions.

use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Object, Value};
use controller::{Action, kinds};

use super::revisions::Revisions;
use super::{is_healthy, min_ready_seconds, replicas, revision_of};

/// The status update, and the next time at which a pod becomes available.
pub(super) struct Status {
    pub update: Option<Action>,
    pub wake_at: Option<Time>,
}

pub(super) fn of(set: &Value, pods: &[&Value], revisions: &Revisions<'_>, now: Time) -> Status {
    let count =
        |is: &dyn Fn(&Value) -> bool| i64::try_from(pods.iter().filter(|pod| is(pod)).count()).unwrap_or(i64::MAX);
    let (mut current, update) = (Meta::of(revisions.current).name(), Meta::of(revisions.update).name());
    let created = |pod: &Value| !Pod(pod).phase().is_empty();
    let available_at = |pod: &Value| Pod(pod).available_at(min_ready_seconds(set));
    let ready = count(&|pod| is_healthy(pod));
    let available = count(&|pod| is_healthy(pod) && available_at(pod).is_some_and(|at| at <= now));
    let of_revision =
        |name: &str| count(&|pod| created(pod) && !Meta::of(pod).is_deleting() && revision_of(pod) == name);
    let (total, updated) = (count(&created), of_revision(update));
    let mut of_current = of_revision(current);
    let desired = replicas(set);
    let rolls = set.str_at(&["spec", "updateStrategy", "type"]) == Some("RollingUpdate");
    if rolls && updated == desired && ready == desired && total == desired {
        // The update is complete: the update revision becomes the current one.
        (current, of_current) = (update, updated);
    }
    let mut status = Object::new();
    let status_list = |field| set.at(&["status", field]).and_then(Value::as_array).map(<[Value]>::to_vec);
    if let Some(conditions) = status_list("conditions").filter(|conditions| !conditions.is_empty()) {
        status.insert("conditions", conditions);
    }
    status.insert("replicas", total);
    status.insert("availableReplicas", available);
    status.insert("collisionCount", revisions.collisions);
    status.insert("currentRevision", current);
    status.insert("updateRevision", update);
    let counted = [
        ("observedGeneration", Meta::of(set).generation()),
        ("readyReplicas", ready),
        ("currentReplicas", of_current),
        ("updatedReplicas", updated),
    ];
    // Go omits zero fields, except the first two.
    for (field, number) in counted.into_iter().filter(|(_, number)| *number != 0) {
        status.insert(field, number);
    }
    let status = Value::Object(status);
    let update = (set.get("status") != Some(&status)).then(|| {
        let mut object = set.clone();
        object.as_object_mut().expect("cached objects are JSON objects").insert("status", status);
        Action::UpdateStatus { resource: kinds::STATEFUL_SETS.clone(), object }
    });
    let later = pods.iter().filter(|pod| is_healthy(pod)).filter_map(|pod| available_at(pod));
    Status { update, wake_at: later.filter(|at| *at > now).min() }
}
