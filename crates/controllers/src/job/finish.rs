//! Job completion and failure, with reason and message.

use api::view::Pod;
use apimachinery::Value;
use apimachinery::time::{Duration, Time};

use super::counts::PodCounts;
use super::policy::{PodFailureAction, evaluate_failure, succeeds};
use super::{completions, is_failed, is_indexed, is_suspended, limit_per_index, spec_number};
use crate::{condition, pod};

/// Two seconds, because timestamps have whole seconds and at least one second must pass.
const SUCCESS_POLICY_DELAY: Duration = Duration::from_seconds(2);

/// The outcome of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finish {
    pub success: bool,
    pub reason: String,
    pub message: String,
}

impl Finish {
    /// Returns the outcome already in the conditions, or the one to be written now.
    pub(super) fn of(job: &Value, owned: &[&Value], counts: &PodCounts, now: Time) -> Option<Self> {
        recorded_finish(job).or_else(|| fails(job, owned, counts, now)).or_else(|| succeeded(job, owned, counts))
    }

    /// Returns the time until which a met success policy waits for running pods to terminate and be counted. Upstream
    /// syncs a Job at most once per second, so it counts such pods too.
    pub(super) fn settles_at(&self, job: &Value, owned: &[&Value]) -> Option<Time> {
        let is_new = self.reason == "SuccessPolicy" && condition::find(job, self.interim()).is_none();
        let runs = owned.iter().any(|pod| Pod(pod).is_active());
        let last = owned.iter().filter(|pod| Pod(pod).is_terminal()).filter_map(|pod| pod::finish_time(pod)).max();
        last.filter(|_| is_new && runs).map(|last| last.plus(SUCCESS_POLICY_DELAY))
    }

    /// Returns the interim condition.
    pub(super) const fn interim(&self) -> &'static str {
        if self.success { "SuccessCriteriaMet" } else { "FailureTarget" }
    }

    /// Returns the terminal condition.
    pub(super) const fn terminal(&self) -> &'static str {
        if self.success { "Complete" } else { "Failed" }
    }

    fn failure(reason: &str, message: impl Into<String>) -> Self {
        Self { success: false, reason: reason.to_owned(), message: message.into() }
    }
}

/// Returns the time at which activeDeadlineSeconds is exceeded.
pub(super) fn deadline(job: &Value) -> Option<Time> {
    let seconds = spec_number(job, "activeDeadlineSeconds").filter(|_| !is_suspended(job))?;
    let start = Time::parse(job.str_at(&["status", "startTime"])?).ok()?;
    Some(start.plus(Duration::from_seconds(seconds)))
}

fn recorded_finish(job: &Value) -> Option<Finish> {
    let read = |kind, success| {
        let have = condition::find(job, kind).filter(|have| have.str_at(&["status"]) == Some("True"))?;
        let text = |field| have.text_at(&[field]).to_owned();
        Some(Finish { success, reason: text("reason"), message: text("message") })
    };
    read("SuccessCriteriaMet", true).or_else(|| read("FailureTarget", false))
}

fn fails(job: &Value, owned: &[&Value], counts: &PodCounts, now: Time) -> Option<Finish> {
    let by_policy = owned.iter().filter(|pod| is_failed(job, pod)).find_map(|pod| match evaluate_failure(job, pod) {
        PodFailureAction::FailJob(policy_message) => Some(policy_message),
        _ => None,
    });
    if let Some(policy_message) = by_policy {
        return Some(Finish::failure("PodFailurePolicy", policy_message));
    }
    let limit = spec_number(job, "backoffLimit").unwrap_or(6);
    if counts.failed_total() > limit || restarts_exceed(job, owned, limit) {
        return Some(Finish::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
    }
    if deadline(job).is_some_and(|deadline| deadline <= now) {
        return Some(Finish::failure("DeadlineExceeded", "Job was active longer than specified deadline"));
    }
    limit_per_index(job).filter(|_| is_indexed(job))?;
    let (given_up, done) = (counts.given_up.len(), counts.done.len());
    let most = spec_number(job, "maxFailedIndexes").and_then(|most| usize::try_from(most).ok());
    if most.is_some_and(|most| given_up > most) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(Finish::failure("MaxFailedIndexesExceeded", message));
    }
    let all = usize::try_from(completions(job)).unwrap_or(usize::MAX);
    (given_up > 0 && given_up + done >= all).then(|| Finish::failure("FailedIndexes", "Job has failed indexes"))
}

fn succeeded(job: &Value, owned: &[&Value], counts: &PodCounts) -> Option<Finish> {
    let success = |reason: &str, message: String| Finish { success: true, reason: reason.to_owned(), message };
    if is_indexed(job)
        && let Some(message) = succeeds(job, &counts.done, completions(job))
    {
        return Some(success("SuccessPolicy", message));
    }
    let total = counts.succeeded_total();
    let complete = match spec_number(job, "completions") {
        // Without completions any success completes the Job, after all running pods have terminated.
        None => total > 0 && !owned.iter().any(|pod| Pod(pod).is_active()),
        Some(required) => total >= required,
    };
    complete.then(|| success("CompletionsReached", "Reached expected number of succeeded pods".to_owned()))
}

/// Whether container restarts exceed the back-off limit. With restartPolicy OnFailure restarts count instead of pods.
fn restarts_exceed(job: &Value, owned: &[&Value], limit: i64) -> bool {
    if job.str_at(&["spec", "template", "spec", "restartPolicy"]) != Some("OnFailure") {
        return false;
    }
    let restarts = |pod: &Value| -> i64 {
        let lists = ["initContainerStatuses", "containerStatuses"].map(|field| pod.at(&["status", field]));
        let statuses = lists.into_iter().flatten().filter_map(Value::as_array).flatten();
        statuses.filter_map(|status| status.get("restartCount")?.as_int()).sum()
    };
    let alive = owned.iter().filter(|pod| matches!(Pod(pod).phase(), "Running" | "Pending"));
    let total: i64 = alive.map(|pod| restarts(pod)).sum();
    if limit == 0 { total > 0 } else { total >= limit }
}
