//! Job pods: creation and deletion within parallelism, one pod per index, with back-off after failures.

use std::collections::BTreeSet;

use api::view::Pod;
use apimachinery::meta::{Meta, MetaMut, NAME_SUFFIX_LENGTH};
use apimachinery::time::{Duration, Time};
use apimachinery::{Value, value};
use controller::{Action, EventOnResult, Plan, Regarding, kinds};

use super::counts::PodCounts;
use super::policy::{PodFailureAction, evaluate_failure};
use super::{
    FINALIZER, completions, has_finalizer, index_of, is_failed, is_indexed, is_suspended, limit_per_index, release,
    replaces_only_failed, spec_number,
};
use crate::{adoption, names, pod};

/// Annotation and label with the pod's completion index.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Annotations with the number of earlier failures, and of earlier ignored failures, of the index.
const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const INDEX_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// Maximum pods created or deleted by one plan (upstream: MaxPodCreateDeletePerSync).
const BURST_MAX: usize = 500;
/// Back-off after the first failure, and the maximum back-off.
const BACKOFF: Duration = Duration::from_seconds(10);
const BACKOFF_MAX: Duration = Duration::from_seconds(600);
/// Maximum length of a name prefix, so that a generated suffix fits.
const PREFIX_MAX: usize = 63 - NAME_SUFFIX_LENGTH;

/// Creates or deletes pods until the desired number runs.
pub(super) fn manage(job: &Value, owned: &[&Value], counts: &PodCounts, now: Time) -> Plan {
    let mut active: Vec<&Value> = owned.iter().copied().filter(|pod| Pod(pod).is_active()).collect();
    active.sort_by_cached_key(|pod| pod::deletion_key(pod, 0, now));
    // A surplus pod loses its finalizer first, so that it is not counted, and is deleted afterwards.
    let (tracked_pods, unwanted): (Vec<&Value>, Vec<&Value>) =
        active.iter().copied().partition(|pod| has_finalizer(pod));
    let mut plan = Plan::default();
    plan.actions.extend(unwanted.into_iter().map(|pod| delete(job, pod)));
    let surplus = surplus(job, &tracked_pods, desired_active(job, &tracked_pods, counts));
    if !surplus.is_empty() {
        plan.actions.extend(surplus.into_iter().take(BURST_MAX).map(release));
        return plan;
    }
    if is_suspended(job) {
        return plan;
    }
    let going = owned.iter().filter(|pod| Pod(pod).is_terminating()).count();
    let going = if replaces_only_failed(job) { going } else { 0 };
    let missing = desired_active(job, &tracked_pods, counts).saturating_sub(tracked_pods.len() + going).min(BURST_MAX);
    if missing > 0 {
        create(&mut plan, job, owned, counts, missing, now);
    }
    plan
}

/// Deletes the running pods of a finished Job.
pub(super) fn stop(job: &Value, owned: &[&Value]) -> Vec<Action> {
    owned.iter().filter(|pod| Pod(pod).is_active()).map(|pod| delete(job, pod)).collect()
}

/// Returns the number of failures of the index before this pod.
pub(super) fn failures_before(pod: &Value) -> i64 {
    Meta::of(pod).annotation(INDEX_FAILURES).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Returns the desired number of active pods.
fn desired_active(job: &Value, tracked_pods: &[&Value], counts: &PodCounts) -> usize {
    if is_suspended(job) {
        return 0;
    }
    let parallelism = spec_number(job, "parallelism").unwrap_or(1);
    let desired = match spec_number(job, "completions") {
        // After the first success no pod is created, and active pods keep running.
        None if counts.succeeded_total() > 0 => return tracked_pods.len(),
        None => parallelism,
        Some(completions) => (completions - counts.succeeded_total()).min(parallelism),
    };
    usize::try_from(desired).unwrap_or(0)
}

/// Returns the pods to delete: duplicates of an index first, then the first in deletion order.
fn surplus<'a>(job: &Value, tracked_pods: &[&'a Value], desired: usize) -> Vec<&'a Value> {
    let mut seen = BTreeSet::new();
    let mut rest = Vec::new();
    let mut surplus = Vec::new();
    // The last pod in deletion order is the one to keep.
    for pod in tracked_pods.iter().rev().copied() {
        if is_indexed(job) && !index_of(job, pod).is_some_and(|index| seen.insert(index)) {
            surplus.push(pod);
        } else {
            rest.push(pod);
        }
    }
    let too_many = rest.len().saturating_sub(desired);
    surplus.extend(rest.into_iter().rev().take(too_many));
    surplus
}

fn create(plan: &mut Plan, job: &Value, owned: &[&Value], counts: &PodCounts, missing: usize, now: Time) {
    if !is_indexed(job) || limit_per_index(job).is_none() {
        let failed: Vec<&Value> = failures_since_success(job, owned);
        if let Some(until) = back_off(&failed, failed.len()).filter(|until| *until > now) {
            plan.wake(until);
            return;
        }
    }
    if !is_indexed(job) {
        let prefix = format!("{}-", Meta::of(job).name());
        let made = names::fresh(job, &prefix, owned, missing);
        plan.actions.extend(made.iter().map(|name| make(job, name, &prefix, None)));
        return;
    }
    for index in pending(job, owned, counts).take(missing) {
        let last = last_failure(job, owned, index).filter(|_| limit_per_index(job).is_some());
        if let Some(last) = last {
            let failures = usize::try_from(failures_before(last)).unwrap_or(0) + 1;
            if let Some(until) = back_off(&[last], failures).filter(|until| *until > now) {
                plan.wake(until);
                continue;
            }
        }
        let prefix = indexed_prefix(Meta::of(job).name(), index);
        let name = names::fresh(job, &prefix, owned, 1).remove(0);
        plan.push(make(job, &name, &prefix, Some((index, last))));
    }
}

/// Returns the indexes that need a pod, the lowest first: neither active, succeeded nor failed.
fn pending<'a>(job: &Value, owned: &[&Value], counts: &'a PodCounts) -> impl Iterator<Item = u32> + use<'a> {
    let busy = |pod: &&&Value| Pod(pod).is_active() || (replaces_only_failed(job) && Pod(pod).is_terminating());
    let busy: BTreeSet<u32> = owned.iter().filter(busy).filter_map(|pod| index_of(job, pod)).collect();
    (0..completions(job))
        .filter(move |index| !busy.contains(index) && !counts.done.has(*index) && !counts.given_up.has(*index))
}

/// Returns the failed pod of an index with the highest failure count.
fn last_failure<'a>(job: &Value, owned: &[&'a Value], index: u32) -> Option<&'a Value> {
    let failed = owned.iter().copied().filter(|pod| is_failed(job, pod) && index_of(job, pod) == Some(index));
    failed.max_by_key(|pod| (failures_before(pod), pod::finish_time(pod)))
}

/// Returns the failed pods that terminated after the last success.
fn failures_since_success<'a>(job: &Value, owned: &[&'a Value]) -> Vec<&'a Value> {
    let success =
        owned.iter().filter(|pod| Pod(pod).phase() == "Succeeded").filter_map(|pod| pod::finish_time(pod)).max();
    let counts = |pod: &&&Value| Pod(pod).phase() == "Failed" && evaluate_failure(job, pod) != PodFailureAction::Ignore;
    owned.iter().filter(counts).copied().filter(|pod| pod::finish_time(pod) > success).collect()
}

/// Returns the time of the next attempt: ten seconds after the last failure, doubled for each further failure.
fn back_off(failed: &[&Value], failures: usize) -> Option<Time> {
    let last = failed.iter().filter_map(|pod| pod::finish_time(pod)).max()?;
    let doubled = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    let wait = BACKOFF.nanos().saturating_mul(1 << doubled).min(BACKOFF_MAX.nanos());
    Some(last.plus(Duration::from_nanos(wait)))
}

fn indexed_prefix(job: &str, index: u32) -> String {
    let suffix = format!("-{index}-");
    format!("{}{suffix}", &job[..job.floor_char_boundary(PREFIX_MAX - suffix.len())])
}

/// Creates a pod of the Job. For an index, `index` carries the index and its last failed pod.
fn make(job: &Value, name: &str, prefix: &str, index: Option<(u32, Option<&Value>)>) -> Action {
    let template = job.at(&["spec", "template"]).unwrap_or(&Value::Null);
    let mut object = pod::from_template(template, Meta::of(job).namespace(), name, prefix, adoption::reference(job));
    if let Some(mut meta) = MetaMut::of(&mut object) {
        meta.add_finalizer(FINALIZER);
        if let Some((index, last)) = index {
            meta.set_annotation(INDEX, &index.to_string());
            meta.set_label(INDEX, &index.to_string());
            if limit_per_index(job).is_some() {
                count_failures(job, &mut meta, last);
            }
        }
    }
    if let Some((index, _)) = index {
        set_index(&mut object, Meta::of(job).name(), index);
    }
    let result_event =
        new_result_event(job, "SuccessfulCreate", format!("Created pod: {name}"), "FailedCreate", "Error creating");
    Action::Create { resource: kinds::PODS.clone(), object, result_event }
}

fn count_failures(job: &Value, meta: &mut MetaMut<'_>, last: Option<&Value>) {
    let ignored = last.is_some_and(|last| evaluate_failure(job, last) == PodFailureAction::Ignore);
    let before = last.map_or(0, failures_before);
    let ignored_before =
        last.and_then(|last| Meta::of(last).annotation(INDEX_IGNORED)?.parse::<i64>().ok()).unwrap_or(0);
    meta.set_annotation(INDEX_FAILURES, &(before + i64::from(last.is_some() && !ignored)).to_string());
    if ignored_before > 0 || ignored {
        meta.set_annotation(INDEX_IGNORED, &(ignored_before + i64::from(ignored)).to_string());
    }
}

/// Passes the index to the pod: as hostname, and as environment variable of each container.
fn set_index(pod: &mut Value, job: &str, index: u32) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.insert("hostname", format!("{job}-{index}"));
    for field in ["containers", "initContainers"] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            let variables = container.get_or_insert_with("env", || Value::Array(Vec::new()));
            let Some(variables) = variables.as_array_mut() else { continue };
            if !variables.iter().any(|have| have.str_at(&["name"]) == Some("JOB_COMPLETION_INDEX")) {
                let path = format!("metadata.labels['{INDEX}']");
                variables
                    .push(value!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}}));
            }
        }
    }
}

fn delete(job: &Value, pod: &Value) -> Action {
    let mut action = Action::delete(&kinds::PODS, pod);
    if let Action::Delete { result_event, .. } = &mut action {
        let message = format!("Deleted pod: {}", Meta::of(pod).name());
        *result_event = new_result_event(job, "SuccessfulDelete", message, "FailedDelete", "Error deleting");
    }
    action
}

fn new_result_event(
    job: &Value,
    done_reason: &'static str,
    done_message: String,
    failed_reason: &'static str,
    failed_prefix: &'static str,
) -> Option<Box<EventOnResult>> {
    let regarding = Regarding::object(job);
    Some(Box::new(EventOnResult {
        regarding,
        done_reason,
        done_message,
        failed: Some((failed_reason, failed_prefix.into())),
    }))
}
