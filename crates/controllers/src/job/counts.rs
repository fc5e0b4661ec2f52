//! Job pod accounting: succeeded and failed pods, and the pods that are still being counted.

use std::collections::BTreeSet;

use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::{Object, Value};
use controller::Action;

use super::indexes::Indexes;
use super::policy::{PodFailureAction, evaluate_failure};
use super::{completions, has_finalizer, index_of, is_failed, is_indexed, limit_per_index, make, release};

/// The counts after this reconciliation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PodCounts {
    /// Counted pods, whose finalizers are removed.
    pub succeeded: i64,
    pub failed: i64,
    /// Pods in uncountedTerminatedPods that still have their finalizers.
    pub uncounted_succeeded: BTreeSet<String>,
    pub uncounted_failed: BTreeSet<String>,
    /// Succeeded indexes of an Indexed Job.
    pub done: Indexes,
    /// Failed indexes; only with backoffLimitPerIndex.
    pub given_up: Indexes,
}

impl PodCounts {
    /// Adds the terminated pods to the counts of the stored status.
    pub(super) fn of(job: &Value, owned: &[&Value]) -> Self {
        let number = |field| job.int_at(&["status", field]).unwrap_or(0);
        let status_field = |field| job.text_at(&["status", field]);
        let mut counts = Self {
            succeeded: number("succeeded"),
            failed: number("failed"),
            uncounted_succeeded: written_down(job, "succeeded"),
            uncounted_failed: written_down(job, "failed"),
            done: Indexes::parse(status_field("completedIndexes"), completions(job)),
            given_up: Indexes::parse(status_field("failedIndexes"), completions(job)),
        };
        let tracked_uids: BTreeSet<&str> =
            owned.iter().filter(|pod| has_finalizer(pod)).map(|pod| Meta::of(pod).uid()).collect();
        counts.succeeded += take_absent(&mut counts.uncounted_succeeded, &tracked_uids);
        counts.failed += take_absent(&mut counts.uncounted_failed, &tracked_uids);
        for pod in owned.iter().filter(|pod| has_finalizer(pod)) {
            counts.add(job, pod);
        }
        if is_indexed(job) {
            counts.succeeded = i64::try_from(counts.done.len()).unwrap_or(i64::MAX);
        }
        counts
    }

    /// Returns the succeeded pods, including uncounted ones.
    pub(super) fn succeeded_total(&self) -> i64 {
        self.succeeded + i64::try_from(self.uncounted_succeeded.len()).unwrap_or(i64::MAX)
    }

    /// Returns the failed pods that count, including uncounted ones.
    pub(super) fn failed_total(&self) -> i64 {
        self.failed + i64::try_from(self.uncounted_failed.len()).unwrap_or(i64::MAX)
    }

    /// Whether all terminated pods are counted.
    pub(super) fn is_all_counted(&self) -> bool {
        self.uncounted_succeeded.is_empty() && self.uncounted_failed.is_empty()
    }

    /// Removes the finalizers of terminated pods that are in the stored status or need not be counted.
    pub(super) fn uncounted_no_more(&self, job: &Value, owned: &[&Value], is_over: bool) -> Vec<Action> {
        let (succeeded, failed) = (written_down(job, "succeeded"), written_down(job, "failed"));
        let done = Indexes::parse(job.text_at(&["status", "completedIndexes"]), completions(job));
        let is_known = |pod: &Value| {
            let uid = Meta::of(pod).uid();
            if succeeded.contains(uid) || failed.contains(uid) {
                return true;
            }
            let index = index_of(job, pod);
            match Pod(pod).phase() {
                "Succeeded" => is_indexed(job) && index.is_none_or(|index| done.has(index)),
                _ => is_failed(job, pod) && (!counts(job, pod) || (is_indexed(job) && index.is_none())),
            }
        };
        let finished_pods = owned.iter().filter(|pod| has_finalizer(pod) && is_known(pod));
        finished_pods.filter(|pod| is_over || !self.is_remembered(job, pod, owned)).map(|pod| release(pod)).collect()
    }

    /// Whether the pod must be kept as the record of its index's failure count, until a newer pod of the index carries
    /// the count.
    fn is_remembered(&self, job: &Value, pod: &Value, owned: &[&Value]) -> bool {
        let Some(index) = index_of(job, pod).filter(|_| limit_per_index(job).is_some()) else { return false };
        let taken_over = owned.iter().any(|other| {
            index_of(job, other) == Some(index) && make::failures_before(other) > make::failures_before(pod)
        });
        Pod(pod).phase() != "Succeeded" && !taken_over && !self.done.has(index) && !self.given_up.has(index)
    }

    fn add(&mut self, job: &Value, pod: &Value) {
        let uid = Meta::of(pod).uid();
        let index = index_of(job, pod);
        if self.uncounted_succeeded.contains(uid) {
            return;
        }
        if Pod(pod).phase() == "Succeeded" && !self.uncounted_failed.contains(uid) {
            match (is_indexed(job), index) {
                (true, Some(index)) => self.done.insert(index),
                (true, None) => {}
                (false, _) => drop(self.uncounted_succeeded.insert(uid.to_owned())),
            }
        } else if is_failed(job, pod) && (!is_indexed(job) || index.is_some()) {
            let verdict = evaluate_failure(job, pod);
            if verdict != PodFailureAction::Ignore {
                self.uncounted_failed.insert(uid.to_owned());
            }
            if let (Some(index), Some(limit)) = (index, limit_per_index(job))
                && (verdict == PodFailureAction::FailIndex
                    || (verdict != PodFailureAction::Ignore && make::failures_before(pod) >= limit))
            {
                self.given_up.insert(index);
            }
        }
    }
}

fn counts(job: &Value, pod: &Value) -> bool {
    evaluate_failure(job, pod) != PodFailureAction::Ignore
}

/// Returns the UIDs in the stored uncountedTerminatedPods.
fn written_down(job: &Value, field: &str) -> BTreeSet<String> {
    let list = job.at(&["status", "uncountedTerminatedPods"]).and_then(Value::as_object);
    let list = list.and_then(|list: &Object| list.get(field)).and_then(Value::as_array).unwrap_or_default();
    list.iter().filter_map(|uid| uid.as_str().map(str::to_owned)).collect()
}

/// Removes the UIDs without a finalizer and returns their number.
fn take_absent(uids: &mut BTreeSet<String>, tracked_uids: &BTreeSet<&str>) -> i64 {
    let before = uids.len();
    uids.retain(|uid| tracked_uids.contains(uid.as_str()));
    i64::try_from(before - uids.len()).unwrap_or(i64::MAX)
}
