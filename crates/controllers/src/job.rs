//! Job controller: runs pods to completion and counts each terminated pod exactly once.
//!
//! A pod has a finalizer until it is counted. Its UID is first stored in the status, then the finalizer is removed, and
//! then the counter is incremented:
//!
//! ```text
//!   terminated, with finalizer ──> uid in uncountedTerminatedPods ──> finalizer removed ──> uid removed, pod counted
//! ```
//!
//! A Job finishes in two steps. First it gets an interim condition (`SuccessCriteriaMet` or `FailureTarget`). When no
//! pod is left that could change the counts, it gets the terminal condition (`Complete` or `Failed`).

mod counts;
mod finish;
mod indexes;
mod make;
mod policy;
mod status;

use std::convert::Infallible;

use api::resources::{EVENTS, JOBS, PODS};
use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, Patch, Plan, Preconditions, Write, kinds};

use crate::{adoption, condition};
use counts::PodCounts;
use finish::Finish;

/// The finalizer of pods that are not counted yet.
const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// The default of `spec.managedBy`.
const MANAGED_BY: &str = "kubernetes.io/job-controller";

pub struct Job;

/// A Job and its pods, or the remaining pods of a deleted Job.
#[derive(Debug)]
pub struct Observation<'a> {
    job: Option<&'a Value>,
    pods: Vec<&'a Value>,
    orphans: Vec<&'a Value>,
    /// The pod with the name of the key, if it has the finalizer, no controller, and no Job that selects it.
    stray: Option<&'a Value>,
}

impl Controller for Job {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "job-controller";
    const READS: &'static [GroupResource] = &[JOBS, PODS];
    const WRITES: &'static [Write] = &[(PODS, ""), (JOBS, "status"), (EVENTS, "")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            PODS => {
                adoption::concerned(object, "Job", cache.of(JOBS), keys);
                if is_stray(object) {
                    keys.push(Key::of(object));
                }
            }
            _ => keys.push(Key::of(object)),
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let stray = stray_pod(cache, key);
        let Some(job) = cache.get(JOBS, key) else {
            let of_job = |pod: &&Value| {
                has_finalizer(pod)
                    && Meta::of(pod).controller().is_some_and(|it| it.kind() == "Job" && it.name() == key.name.as_str())
            };
            let left = cache.in_namespace(PODS, &key.namespace).filter(of_job).collect();
            return Some(Observation { job: None, pods: left, orphans: Vec::new(), stray });
        };
        Some(Observation {
            job: Some(job),
            pods: cache.controlled_by(PODS, Meta::of(job).uid()).collect(),
            orphans: cache.orphans(PODS, &key.namespace).collect(),
            stray,
        })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        if let Some(stray) = observed.stray {
            return let_go(&[stray]);
        }
        let Some(job) = observed.job else { return let_go(&observed.pods) };
        if job.str_at(&["spec", "managedBy"]).is_some_and(|by| by != MANAGED_BY) {
            return Plan::waiting("another controller manages the Job");
        }
        if is_finished(job) {
            return let_go(&observed.pods);
        }
        let Some(selector) = adoption::selector(job) else { return Plan::waiting("the selector is empty or invalid") };
        let (pods, orphans) = (observed.pods.iter().copied(), observed.orphans.iter().copied());
        let claims = adoption::claim_with_finalizer(job, &selector, &kinds::PODS, pods, orphans, Some(FINALIZER));
        if !claims.actions.is_empty() {
            return Plan { actions: claims.actions, ..Plan::default() };
        }
        run(job, &claims.owned, now)
    }
}

pub fn is_finished(job: &Value) -> bool {
    finished(job).is_some()
}

/// Returns the terminal condition of a Job.
pub fn finished(job: &Value) -> Option<&Value> {
    let is_true = |kind| condition::find(job, kind).filter(|have| have.str_at(&["status"]) == Some("True"));
    is_true("Complete").or_else(|| is_true("Failed"))
}

fn run(job: &Value, owned: &[&Value], now: Time) -> Plan {
    let counts = PodCounts::of(job, owned);
    let finish = Finish::of(job, owned, &counts, now);
    if let Some(until) = finish.as_ref().and_then(|finish| finish.settles_at(job, owned)).filter(|until| *until > now) {
        let mut plan = Plan::waiting("waiting for pods that terminate at about the same time");
        plan.actions = status::of(job, owned, &counts, None, now);
        plan.wake(until);
        return plan;
    }
    let mut plan = Plan { actions: counts.uncounted_no_more(job, owned, finish.is_some()), ..Plan::default() };
    match &finish {
        Some(_) => plan.actions.extend(make::stop(job, owned)),
        None if Meta::of(job).is_deleting() => {}
        None => {
            let managed = make::manage(job, owned, &counts, now);
            plan.actions.extend(managed.actions);
            if let Some(time) = managed.wake_at {
                plan.wake(time);
            }
        }
    }
    if let Some(deadline) = finish::deadline(job).filter(|deadline| *deadline > now) {
        plan.wake(deadline);
    }
    plan.actions.extend(status::of(job, owned, &counts, finish, now));
    plan
}

/// Whether a pod has the Job finalizer and no controller.
fn is_stray(pod: &Value) -> bool {
    Meta::of(pod).controller().is_none() && has_finalizer(pod)
}

/// Returns the pod of this key if it is stray and no Job will adopt it. No controller removes the finalizer of such a
/// pod, so neither the pod nor its namespace could be deleted.
fn stray_pod<'a>(cache: &'a Cache, key: &Key) -> Option<&'a Value> {
    let pod = cache.get(PODS, key).filter(|pod| is_stray(pod))?;
    let adopts = |job: &Value| {
        !is_finished(job)
            && !Meta::of(job).is_deleting()
            && !Meta::of(pod).is_deleting()
            && adoption::selector(job).is_some_and(|selector| selector.matches_object(pod))
    };
    let mut jobs = cache.in_namespace(JOBS, &key.namespace);
    (!jobs.any(adopts)).then_some(pod)
}

/// Removes the finalizer from pods that no Job counts.
fn let_go(pods: &[&Value]) -> Plan {
    Plan { actions: pods.iter().filter(|pod| has_finalizer(pod)).map(|pod| release(pod)).collect(), ..Plan::default() }
}

fn release(pod: &Value) -> Action {
    Action::Patch {
        resource: kinds::PODS.clone(),
        key: Key::of(pod),
        subresource: "",
        only_if: Preconditions::same(pod),
        patch: Patch::Strategic(value!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}})),
    }
}

fn has_finalizer(pod: &Value) -> bool {
    Meta::of(pod).finalizers().any(|name| name == FINALIZER)
}

/// Whether a pod failed, or is being deleted and may be replaced before it terminates.
fn is_failed(job: &Value, pod: &Value) -> bool {
    match Pod(pod).phase() {
        "Failed" => true,
        "Succeeded" => false,
        _ => Meta::of(pod).is_deleting() && !replaces_only_failed(job),
    }
}

/// Whether a pod that is being deleted must terminate before its replacement is created.
fn replaces_only_failed(job: &Value) -> bool {
    job.str_at(&["spec", "podReplacementPolicy"]) == Some("Failed") || job.at(&["spec", "podFailurePolicy"]).is_some()
}

fn is_suspended(job: &Value) -> bool {
    job.is_true_at(&["spec", "suspend"])
}

fn is_indexed(job: &Value) -> bool {
    job.str_at(&["spec", "completionMode"]) == Some("Indexed")
}

/// Returns backoffLimitPerIndex, if set.
fn limit_per_index(job: &Value) -> Option<i64> {
    spec_number(job, "backoffLimitPerIndex")
}

fn spec_number(job: &Value, field: &str) -> Option<i64> {
    job.int_at(&["spec", field])
}

/// Returns the completions of an Indexed Job.
fn completions(job: &Value) -> u32 {
    spec_number(job, "completions").and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
}

/// Returns the pod's completion index if it is below `spec.completions`.
fn index_of(job: &Value, pod: &Value) -> Option<u32> {
    let text = Meta::of(pod).annotation(make::INDEX)?;
    text.parse().ok().filter(|index| *index < completions(job))
}

#[cfg(test)]
mod tests;
