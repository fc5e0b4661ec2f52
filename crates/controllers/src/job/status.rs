//! Job status, computed from its pods and its stored status.

use std::collections::BTreeSet;

use api::view::Pod;
use apimachinery::time::Time;
use apimachinery::{Object, Value, value};
use controller::{Action, EventType, Regarding, kinds};

use super::counts::PodCounts;
use super::finish::Finish;
use super::{is_indexed, is_suspended, limit_per_index};
use crate::condition;

/// Returns the status update and its events.
pub(super) fn of(job: &Value, owned: &[&Value], counts: &PodCounts, finish: Option<Finish>, now: Time) -> Vec<Action> {
    let mut events = Vec::new();
    let mut status = numbers(job, owned, counts);
    let mut conditions = job.list_at(&["status", "conditions"]).to_vec();
    let mut start = job.at(&["status", "startTime"]).cloned();
    if start.is_none() && !is_suspended(job) {
        start = Some(now.to_string().into());
    }
    match finish {
        Some(finish) => end(job, owned, counts, &finish, &mut status, &mut conditions, &mut events, now),
        None => {
            if suspend(job, &mut conditions, &mut events, now) == Some(false) {
                // The time during which a Job is suspended does not count towards activeDeadlineSeconds.
                start = Some(now.to_string().into());
            }
        }
    }
    if let Some(start) = start {
        status.insert("startTime", start);
    }
    if !conditions.is_empty() {
        status.insert("conditions", conditions);
    }
    let status = Value::Object(status);
    if job.get("status") == Some(&status) {
        return Vec::new();
    }
    let mut object = job.clone();
    object.as_object_mut().expect("cached objects are JSON objects").insert("status", status);
    let mut actions = vec![Action::UpdateStatus { resource: kinds::JOBS.clone(), object }];
    actions.extend(events);
    actions
}

fn numbers(job: &Value, owned: &[&Value], counts: &PodCounts) -> Object {
    let count =
        |is: &dyn Fn(&Value) -> bool| i64::try_from(owned.iter().filter(|pod| is(pod)).count()).unwrap_or(i64::MAX);
    let mut status = Object::new();
    status.insert("ready", count(&|pod| Pod(pod).is_active() && Pod(pod).is_ready()));
    status.insert("terminating", count(&|pod| Pod(pod).is_terminating()));
    let counted =
        [("active", count(&|pod| Pod(pod).is_active())), ("succeeded", counts.succeeded), ("failed", counts.failed)];
    // Go omits zero fields, except the first two.
    for (field, number) in counted.into_iter().filter(|(_, number)| *number != 0) {
        status.insert(field, number);
    }
    let mut uncounted = Object::new();
    for (field, uids) in [("succeeded", &counts.uncounted_succeeded), ("failed", &counts.uncounted_failed)] {
        if !uids.is_empty() {
            uncounted.insert(field, listed(uids));
        }
    }
    status.insert("uncountedTerminatedPods", uncounted);
    if is_indexed(job) && !counts.done.is_empty() {
        status.insert("completedIndexes", counts.done.to_string());
    }
    if is_indexed(job) && limit_per_index(job).is_some() {
        status.insert("failedIndexes", counts.given_up.to_string());
    }
    status
}

fn listed(uids: &BTreeSet<String>) -> Vec<Value> {
    uids.iter().map(|uid| uid.as_str().into()).collect()
}

/// Sets the interim condition, or the terminal condition when no pod is left that could change the counts.
#[expect(clippy::too_many_arguments, reason = "it writes three parts of one status")]
fn end(
    job: &Value,
    owned: &[&Value],
    counts: &PodCounts,
    finish: &Finish,
    status: &mut Object,
    conditions: &mut Vec<Value>,
    events: &mut Vec<Action>,
    now: Time,
) {
    let make = |kind: &str| make(kind, "True", &finish.reason, &finish.message, now);
    if condition::in_list(conditions, finish.interim()).is_none() {
        conditions.push(make(finish.interim()));
        return;
    }
    let quiet = counts.is_all_counted() && !owned.iter().any(|pod| Pod(pod).is_active() || Pod(pod).is_terminating());
    if !quiet {
        return;
    }
    conditions.push(make(finish.terminal()));
    let event = |kind, reason, message: &str| Action::Event {
        regarding: Regarding::object(job),
        kind,
        reason,
        message: message.to_owned(),
    };
    if finish.success {
        status.insert("completionTime", now.to_string());
        events.push(event(EventType::Normal, "Completed", "Job completed"));
    } else {
        events.push(event(EventType::Warning, known(&finish.reason), &finish.message));
    }
}

/// Returns the reason of an event as a static string. A reason that another client wrote into the condition becomes a
/// generic failure.
fn known(reason: &str) -> &'static str {
    const ALL: &[&str] =
        &["BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"];
    ALL.iter().find(|known| **known == reason).copied().unwrap_or("Failed")
}

/// Updates the Suspended condition. Returns the new state if it changed: `false` if the Job was resumed.
fn suspend(job: &Value, conditions: &mut Vec<Value>, events: &mut Vec<Action>, now: Time) -> Option<bool> {
    let suspended_status = condition::in_list(conditions, "Suspended").and_then(|have| have.str_at(&["status"]));
    let (status, reason, message, event) = match (is_suspended(job), suspended_status) {
        (true, Some("True")) | (false, None | Some("False")) => return None,
        (true, _) => ("True", "JobSuspended", "Job suspended", "Suspended"),
        (false, Some(_)) => ("False", "JobResumed", "Job resumed", "Resumed"),
    };
    condition::remove(conditions, "Suspended");
    conditions.push(make("Suspended", status, reason, message, now));
    let regarding = Regarding::object(job);
    events.push(Action::Event { regarding, kind: EventType::Normal, reason: event, message: message.to_owned() });
    Some(is_suspended(job))
}

fn make(kind: &str, status: &str, reason: &str, message: &str, now: Time) -> Value {
    let now = now.to_string();
    value!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastProbeTime": (now.as_str()), "lastTransitionTime": now})
}
