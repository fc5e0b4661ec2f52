//! CronJob controller: starts Jobs on schedule and deletes finished Jobs beyond the history limits.

mod next;

use std::convert::Infallible;

use api::resources::{CRON_JOBS, EVENTS, JOBS};
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Object, Value, value};
use controller::{Action, Cache, Controller, EventOnResult, EventType, Plan, Propagation, Regarding, Write, kinds};

use crate::{adoption, job};
use next::ZonedSchedule;

/// Annotation with the time that a Job was scheduled for.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

pub struct CronJob;

/// A CronJob and its Jobs.
#[derive(Debug)]
pub struct Observation<'a> {
    cron: &'a Value,
    jobs: Vec<&'a Value>,
}

impl Controller for CronJob {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "cronjob-controller";
    const READS: &'static [GroupResource] = &[CRON_JOBS, JOBS];
    const WRITES: &'static [Write] = &[(JOBS, ""), (CRON_JOBS, "status"), (EVENTS, "")];

    fn affected_keys(_: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        let meta = Meta::of(object);
        match kind {
            JOBS => {
                let owner = meta.controller().filter(|owner| owner.kind() == "CronJob");
                keys.extend(owner.map(|owner| Key::new(meta.namespace(), owner.name())));
            }
            _ => keys.push(Key::of(object)),
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let cron = cache.get(CRON_JOBS, key)?;
        Some(Observation { cron, jobs: cache.controlled_by(JOBS, Meta::of(cron).uid()).collect() })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let (cron, jobs) = (observed.cron, observed.jobs.as_slice());
        let mut plan = Plan { actions: beyond_history(cron, jobs), ..Plan::default() };
        let status = status(cron, jobs);
        plan.actions.extend(finished_job_events(cron, jobs));
        if let Some(update) = status.update {
            // Due times are computed from the stored status: wait until this update is observed.
            plan.push(update);
            return plan;
        }
        let suspended = cron.is_true_at(&["spec", "suspend"]);
        if Meta::of(cron).is_deleting() || suspended {
            return plan;
        }
        let text = |field| cron.str_at(&["spec", field]);
        match ZonedSchedule::parse(text("schedule").unwrap_or_default(), text("timeZone")) {
            Ok(due) => start(&mut plan, cron, jobs, &due, now),
            Err(message) => {
                let reason =
                    if message.starts_with("invalid timeZone") { "UnknownTimeZone" } else { "UnparseableSchedule" };
                plan.push(event(cron, EventType::Warning, reason, message.clone()));
                plan.waiting = Some(message);
            }
        }
        plan
    }
}

/// Starts a Job if one is due, and sets the wake-up to the next scheduled time.
fn start(plan: &mut Plan, cron: &Value, jobs: &[&Value], due: &ZonedSchedule, now: Time) {
    let Some(next) = due.after(now) else {
        let schedule = cron.text_at(&["spec", "schedule"]);
        let schedule_error =
            format!("invalid schedule: {schedule} : time difference between two schedules is less than 1 second");
        plan.push(event(cron, EventType::Warning, "InvalidSchedule", schedule_error.clone()));
        plan.waiting = Some(schedule_error);
        return;
    };
    plan.wake(next);
    let deadline = cron.int_at(&["spec", "startingDeadlineSeconds"]);
    let last = time(cron.str_at(&["status", "lastScheduleTime"]));
    let born = Meta::of(cron).creation_timestamp();
    let mut from = last.or(born).unwrap_or(now);
    if let Some(seconds) = deadline {
        // Times before startingDeadlineSeconds are not considered.
        from = from.max(now.plus(Duration::from_seconds(seconds.saturating_neg())));
    }
    let Some((at, too_many)) = due.latest(from, now) else { return };
    if too_many {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.push(event(cron, EventType::Warning, "TooManyMissedTimes", message.to_owned()));
    }
    let name = name(cron, at);
    if last == Some(at) || jobs.iter().any(|job| Meta::of(job).name() == name) {
        return;
    }
    let active: Vec<&Value> = jobs.iter().copied().filter(|job| !job::is_finished(job)).collect();
    match cron.str_at(&["spec", "concurrencyPolicy"]) {
        Some("Forbid") if !active.is_empty() => {
            plan.waiting = Some("the previous Job is still running".to_owned());
            if plan.actions.is_empty() {
                let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                plan.push(event(cron, EventType::Normal, "JobAlreadyActive", message.to_owned()));
            }
        }
        Some("Replace") if !active.is_empty() => {
            let alive = active.iter().filter(|job| !Meta::of(job).is_deleting());
            plan.actions.extend(alive.map(|job| delete(cron, job)));
            plan.waiting = Some("the replaced Jobs are being deleted".to_owned());
        }
        _ => plan.push(create(cron, &name, due, at)),
    }
}

fn create(cron: &Value, name: &str, due: &ZonedSchedule, at: Time) -> Action {
    let template = cron.at(&["spec", "jobTemplate"]).unwrap_or(&Value::Null);
    let of_template = Meta::of(template);
    let mut metadata = Object::new();
    metadata.insert("namespace", Meta::of(cron).namespace());
    metadata.insert("name", name);
    for field in ["labels", "annotations"] {
        if let Some(value) = of_template.value(field) {
            metadata.insert(field, value.clone());
        }
    }
    metadata.insert("ownerReferences", vec![adoption::reference(cron)]);
    let spec = template.get("spec").cloned().unwrap_or_else(Value::object);
    let mut object = value!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec});
    if let Some(mut meta) = MetaMut::of(&mut object) {
        meta.set_annotation(SCHEDULED, &due.written(at));
    }
    let result_event = EventOnResult {
        regarding: Regarding::object(cron),
        done_reason: "SuccessfulCreate",
        done_message: format!("Created job {name}"),
        failed: Some(("FailedCreate", "Error creating job".into())),
    };
    Action::Create { resource: kinds::JOBS.clone(), object, result_event: Some(Box::new(result_event)) }
}

fn delete(cron: &Value, job: &Value) -> Action {
    let mut action = Action::delete(&kinds::JOBS, job);
    if let Action::Delete { result_event, propagation, .. } = &mut action {
        *propagation = Some(Propagation::Background);
        *result_event = Some(Box::new(EventOnResult {
            regarding: Regarding::object(cron),
            done_reason: "SuccessfulDelete",
            done_message: format!("Deleted job {}", Meta::of(job).name()),
            failed: Some(("FailedDelete", "Deleted job".into())),
        }));
    }
    action
}

/// Returns the deterministic name of the Job for a time, so that no time is started twice.
fn name(cron: &Value, at: Time) -> String {
    format!("{}-{}", Meta::of(cron).name(), at.unix_seconds() / 60)
}

/// Deletes finished Jobs beyond the history limits.
fn beyond_history(cron: &Value, jobs: &[&Value]) -> Vec<Action> {
    let over = |kind: &str, limit: &str| {
        let limit = cron.int_at(&["spec", limit]).and_then(|limit| usize::try_from(limit).ok());
        let is = |job: &&&Value| job::finished(job).and_then(|have| have.str_at(&["type"])) == Some(kind);
        let mut over: Vec<&Value> = jobs.iter().filter(is).copied().collect();
        over.sort_by_cached_key(|job| (time(job.str_at(&["status", "startTime"])), Meta::of(job).name().to_owned()));
        let surplus = limit.map_or(0, |limit| over.len().saturating_sub(limit));
        over.truncate(surplus);
        over
    };
    let all =
        over("Complete", "successfulJobsHistoryLimit").into_iter().chain(over("Failed", "failedJobsHistoryLimit"));
    all.filter(|job| !Meta::of(job).is_deleting()).map(|job| delete(cron, job)).collect()
}

/// Emits events about active Jobs that finished or were deleted.
fn finished_job_events(cron: &Value, jobs: &[&Value]) -> Vec<Action> {
    let mut events = Vec::new();
    for entry in active(cron) {
        let (uid, name) = (entry.str_at(&["uid"]), entry.text_at(&["name"]));
        match jobs.iter().find(|job| Some(Meta::of(job).uid()) == uid) {
            None => {
                let message = format!("Active job went missing: {name}");
                events.push(event(cron, EventType::Normal, "MissingJob", message));
            }
            Some(job) => {
                if let Some(done) = job::finished(job) {
                    let kind = done.text_at(&["type"]);
                    let message = format!("Saw completed job: {name}, condition: {kind}");
                    events.push(event(cron, EventType::Normal, "SawCompletedJob", message));
                }
            }
        }
    }
    events
}

struct Status {
    update: Option<Action>,
}

/// Computes the CronJob's status from its Jobs.
// DEVIATION: `status.active` lists every running Job that the CronJob controls; upstream omits Jobs that it did not
// start.
fn status(cron: &Value, jobs: &[&Value]) -> Status {
    let old = cron.get("status").cloned().unwrap_or_else(Value::object);
    let mut status = old.as_object().cloned().unwrap_or_default();
    let mut running: Vec<&Value> = jobs.iter().copied().filter(|job| !job::is_finished(job)).collect();
    running.sort_by_cached_key(|job| (Meta::of(job).creation_timestamp(), Meta::of(job).name().to_owned()));
    let entries: Vec<Value> =
        running.iter().map(|job| known(cron, job).cloned().unwrap_or_else(|| reference(job))).collect();
    if entries.is_empty() {
        status.remove("active");
    } else {
        status.insert("active", entries);
    }
    let recorded = |field: &str| time(old.str_at(&[field]));
    let scheduled = jobs.iter().filter_map(|job| time(Meta::of(job).annotation(SCHEDULED))).max();
    let is_success = |job: &&&Value| job::finished(job).and_then(|have| have.str_at(&["type"])) == Some("Complete");
    let success =
        jobs.iter().filter(is_success).filter_map(|job| time(job.str_at(&["status", "completionTime"]))).max();
    for (field, seen) in [("lastScheduleTime", scheduled), ("lastSuccessfulTime", success)] {
        if let Some(time) = seen.filter(|seen| recorded(field).is_none_or(|recorded| recorded < *seen)) {
            status.insert(field, time.to_string());
        }
    }
    let status = Value::Object(status);
    let update = (status != old).then(|| {
        let mut object = cron.clone();
        object.as_object_mut().expect("cached objects are JSON objects").insert("status", status);
        Action::UpdateStatus { resource: kinds::CRON_JOBS.clone(), object }
    });
    Status { update }
}

fn active(cron: &Value) -> &[Value] {
    cron.list_at(&["status", "active"])
}

fn known<'a>(cron: &'a Value, job: &Value) -> Option<&'a Value> {
    active(cron).iter().find(|entry| entry.str_at(&["uid"]) == Some(Meta::of(job).uid()))
}

fn reference(job: &Value) -> Value {
    let meta = Meta::of(job);
    value!({"apiVersion": "batch/v1", "kind": "Job", "namespace": (meta.namespace()), "name": (meta.name()),
        "uid": (meta.uid()), "resourceVersion": (meta.resource_version())})
}

fn event(cron: &Value, kind: EventType, reason: &'static str, message: String) -> Action {
    Action::Event { regarding: Regarding::object(cron), kind, reason, message }
}

fn time(text: Option<&str>) -> Option<Time> {
    text.and_then(|text| Time::parse(text).ok())
}

#[cfg(test)]
mod tests;
