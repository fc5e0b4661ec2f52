//! Deployment status: counts and conditions (Available, Progressing, ReplicaFailure) from its ReplicaSets.

use api::resources::REPLICA_SETS;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::time::{Duration, Time};
use apimachinery::{Object, Value, value};
use controller::{Action, Rejection, kinds};

use super::new_set::{HISTORY, REVISION};
use super::sets::{Sets, max_unavailable};
use super::{is_paused, replicas};
use crate::condition;

/// The status update, and the time at which the progress deadline expires.
pub(super) struct Status {
    pub update: Option<Action>,
    pub wake_at: Option<Time>,
}

/// The inputs of the status in addition to the ReplicaSets.
#[derive(Clone, Copy)]
pub(super) struct StatusInputs<'a> {
    deployment: &'a Value,
    /// Whether a rollout runs, so that the progress condition applies.
    rolls: bool,
    /// Whether another object has the name of the new ReplicaSet.
    collision: bool,
    rejection: Option<&'a Rejection>,
}

/// The replica counts of a status.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Numbers {
    replicas: i64,
    updated: i64,
    ready: i64,
    available: i64,
}

/// Returns the inputs for a status with counts only: the Deployment is paused, being scaled or being deleted.
pub(super) const fn plain(deployment: &Value) -> StatusInputs<'_> {
    StatusInputs { deployment, rolls: false, collision: false, rejection: None }
}

/// Returns the inputs for a status with counts and progress.
pub(super) const fn rollout<'a>(
    deployment: &'a Value,
    collision: bool,
    rejection: Option<&'a Rejection>,
) -> StatusInputs<'a> {
    StatusInputs { deployment, rolls: true, collision, rejection }
}

/// Whether all pods belong to the new ReplicaSet and are available.
pub(super) fn is_complete(deployment: &Value, sets: &Sets<'_>) -> bool {
    let numbers = Numbers::of(sets);
    let desired_replicas = replicas(deployment);
    numbers.updated == desired_replicas && numbers.replicas == desired_replicas && numbers.available == desired_replicas
}

/// Updates observedGeneration only.
pub(super) fn seen(deployment: &Value) -> Option<Action> {
    let generation = Meta::of(deployment).generation();
    let observed = deployment.int_at(&["status", "observedGeneration"]).unwrap_or(0);
    (observed < generation).then(|| {
        let mut object = deployment.clone();
        let root = object.as_object_mut().expect("cached objects are JSON objects");
        let status = root.get_or_insert_with("status", Value::object);
        if let Some(status) = status.as_object_mut() {
            status.insert("observedGeneration", generation);
        }
        Action::UpdateStatus { resource: kinds::DEPLOYMENTS.clone(), object }
    })
}

pub(super) fn of(sets: &Sets<'_>, how: StatusInputs<'_>, now: Time) -> Status {
    let deployment = how.deployment;
    let numbers = Numbers::of(sets);
    let conditions = conditions(sets, &how, numbers, now);
    let unavailable = (sets.all().map(|set| replicas(set.object)).sum::<i64>() - numbers.available).max(0);
    let mut status = Object::new();
    let fields = [
        ("observedGeneration", Meta::of(deployment).generation()),
        ("replicas", numbers.replicas),
        ("updatedReplicas", numbers.updated),
        ("readyReplicas", numbers.ready),
        ("availableReplicas", numbers.available),
        ("unavailableReplicas", unavailable),
    ];
    for (field, number) in fields.into_iter().filter(|(_, number)| *number != 0) {
        status.insert(field, number);
    }
    let terminating: Option<i64> = sets.all().map(|set| set.object.int_at(&["status", "terminatingReplicas"])).sum();
    if let Some(terminating) = terminating {
        status.insert("terminatingReplicas", terminating);
    }
    let collisions = deployment.int_at(&["status", "collisionCount"]).unwrap_or(0);
    if collisions > 0 || how.collision {
        status.insert("collisionCount", collisions + i64::from(how.collision));
    }
    let wake_at = deadline_of(deployment, &conditions).filter(|_| how.rolls && !is_complete(deployment, sets));
    status.insert("conditions", conditions);
    Status { update: update(deployment, sets, Value::Object(status)), wake_at: wake_at.filter(|at| *at > now) }
}

fn update(deployment: &Value, sets: &Sets<'_>, status: Value) -> Option<Action> {
    let revision = sets.new.as_ref().and_then(|new| new.meta().annotation(REVISION));
    let revision = revision.filter(|revision| Meta::of(deployment).annotation(REVISION) != Some(revision));
    if deployment.get("status") == Some(&status) && revision.is_none() {
        return None;
    }
    let mut object = deployment.clone();
    object.as_object_mut()?.insert("status", status);
    if let Some(revision) = revision {
        MetaMut::of(&mut object)?.set_annotation(REVISION, revision);
    }
    Some(Action::UpdateStatus { resource: kinds::DEPLOYMENTS.clone(), object })
}

fn conditions(sets: &Sets<'_>, how: &StatusInputs<'_>, numbers: Numbers, now: Time) -> Vec<Value> {
    let deployment = how.deployment;
    let mut list = deployment.list_at(&["status", "conditions"]).to_vec();
    let make = |kind: &str, status: &str, reason: &str, message: &str| {
        let now = now.to_string();
        value!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastUpdateTime": (now.as_str()), "lastTransitionTime": now})
    };
    let enough = numbers.available >= replicas(deployment) - max_unavailable(deployment);
    condition::set(
        &mut list,
        if enough {
            make("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            make("Available", "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        },
    );
    if deadline_seconds(deployment).is_none() {
        condition::remove(&mut list, "Progressing");
    } else {
        pause(&mut list, deployment, &make);
        if how.rolls {
            progress(&mut list, sets, how, numbers, now, &make);
        }
    }
    if how.rolls {
        replica_failure(&mut list, sets, &make);
    }
    list
}

type Make<'m> = dyn Fn(&str, &str, &str, &str) -> Value + 'm;

/// Sets the Progressing condition to paused or resumed, which stops or restarts the progress deadline.
fn pause(list: &mut Vec<Value>, deployment: &Value, make: &Make<'_>) {
    let reason = condition::in_list(list, "Progressing").and_then(|have| have.str_at(&["reason"]));
    match (is_paused(deployment), reason) {
        (_, Some("ProgressDeadlineExceeded")) | (true, Some("DeploymentPaused")) => {}
        (true, _) => condition::set(list, make("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused")),
        (false, Some("DeploymentPaused")) => {
            condition::set(list, make("Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed"));
        }
        (false, _) => {}
    }
}

fn progress(
    list: &mut Vec<Value>,
    sets: &Sets<'_>,
    how: &StatusInputs<'_>,
    numbers: Numbers,
    now: Time,
    make: &Make<'_>,
) {
    let deployment = how.deployment;
    if let Some(rejection) = how.rejection.filter(|rejection| rejection.create && rejection.is_of(REPLICA_SETS)) {
        let name = super::new_set::name(deployment);
        let message = format!("Failed to create new replica set \"{name}\": {}", rejection.message);
        condition::set(list, make("Progressing", "False", "ReplicaSetCreateError", &message));
        return;
    }
    note_new_set(list, sets, make);
    let Some(current) = condition::in_list(list, "Progressing").cloned() else { return };
    let reason = current.text_at(&["reason"]);
    // An interrupted write may have left the name of the previous ReplicaSet.
    let message = current.text_at(&["message"]);
    let is_of_this = sets.new.as_ref().is_none_or(|new| message.contains(new.name()));
    let available = reason == "NewReplicaSetAvailable";
    if available && is_of_this && numbers.replicas == numbers.updated {
        return;
    }
    let subject = match &sets.new {
        Some(new) => format!("ReplicaSet \"{}\"", new.name()),
        None => format!("Deployment \"{}\"", Meta::of(deployment).name()),
    };
    if is_complete(deployment, sets) {
        let message = format!("{subject} has successfully progressed.");
        let mut condition = make("Progressing", "True", "NewReplicaSetAvailable", &message);
        if available && !is_of_this {
            keep_transition(&mut condition, &current);
            condition::remove(list, "Progressing");
        }
        condition::set(list, condition);
    } else if Numbers::from_status(deployment).progressed_to(numbers) {
        let mut condition = make("Progressing", "True", "ReplicaSetUpdated", &format!("{subject} is progressing."));
        if current.str_at(&["status"]) == Some("True") {
            keep_transition(&mut condition, &current);
        }
        // Replaces the condition to renew lastUpdateTime, even if nothing else changed.
        condition::remove(list, "Progressing");
        list.push(condition);
    } else if deadline_of(deployment, list).is_some_and(|deadline| deadline <= now) {
        let message = format!("{subject} has timed out progressing.");
        condition::set(list, make("Progressing", "False", "ProgressDeadlineExceeded", &message));
    }
}

/// Treats a new ReplicaSet as progress, which restarts the progress deadline.
fn note_new_set(list: &mut Vec<Value>, sets: &Sets<'_>, make: &Make<'_>) {
    let Some(new) = &sets.new else { return };
    let known = Meta::of(sets.deployment).annotation(REVISION) == new.meta().annotation(REVISION);
    let fresh = new.meta().annotation(HISTORY).is_none();
    if !known && fresh {
        let message = format!("Created new replica set \"{}\"", new.name());
        condition::set(list, make("Progressing", "True", "NewReplicaSetCreated", &message));
    } else if condition::in_list(list, "Progressing").is_none() {
        let message = format!("Found new replica set \"{}\"", new.name());
        condition::set(list, make("Progressing", "True", "FoundNewReplicaSet", &message));
    }
}

/// Copies the ReplicaFailure condition of a ReplicaSet, preferring the new one.
fn replica_failure(list: &mut Vec<Value>, sets: &Sets<'_>, make: &Make<'_>) {
    let failure = sets.new.iter().chain(&sets.old).find_map(|set| condition::find(set.object, "ReplicaFailure"));
    match failure {
        Some(failure) => {
            let text = |field| failure.text_at(&[field]);
            condition::set(list, make("ReplicaFailure", text("status"), text("reason"), text("message")));
        }
        None => condition::remove(list, "ReplicaFailure"),
    }
}

fn keep_transition(condition: &mut Value, current: &Value) {
    if let (Some(condition), Some(time)) = (condition.as_object_mut(), current.get("lastTransitionTime")) {
        condition.insert("lastTransitionTime", time.clone());
    }
}

/// Returns progressDeadlineSeconds; `None` if there is no deadline.
fn deadline_seconds(deployment: &Value) -> Option<i64> {
    let seconds = deployment.int_at(&["spec", "progressDeadlineSeconds"])?;
    (seconds != i64::from(i32::MAX)).then_some(seconds)
}

/// Returns the progress deadline, if progress is expected. One second is added, because timestamps have whole seconds.
fn deadline_of(deployment: &Value, conditions: &[Value]) -> Option<Time> {
    let seconds = deadline_seconds(deployment)?;
    let current = condition::in_list(conditions, "Progressing")?;
    if matches!(
        current.str_at(&["reason"]),
        Some("NewReplicaSetAvailable" | "ProgressDeadlineExceeded" | "DeploymentPaused")
    ) {
        return None;
    }
    let from = Time::parse(current.str_at(&["lastUpdateTime"])?).ok()?;
    Some(from.plus(Duration::from_seconds(seconds + 1)))
}

impl Numbers {
    fn of(sets: &Sets<'_>) -> Self {
        let sum = |field| sets.all().map(|set| set.status(field)).sum();
        Self {
            replicas: sum("replicas"),
            updated: sets.new.as_ref().map_or(0, |new| new.status("replicas")),
            ready: sum("readyReplicas"),
            available: sum("availableReplicas"),
        }
    }

    /// Returns the counts of the stored status.
    fn from_status(deployment: &Value) -> Self {
        let field = |name| deployment.int_at(&["status", name]).unwrap_or(0);
        Self {
            replicas: field("replicas"),
            updated: field("updatedReplicas"),
            ready: field("readyReplicas"),
            available: field("availableReplicas"),
        }
    }

    fn progressed_to(self, next: Self) -> bool {
        next.updated > self.updated
            || next.replicas - next.updated < self.replicas - self.updated
            || next.ready > self.ready
            || next.available > self.available
    }
}
