//! Validation of a Job's status and its transitions.
//!
//! External controllers may manage a Job (`managedBy`), so the server enforces the meaning of the status. A rule
//! applies only if the fields it refers to change, because the status may be stale after a spec update.

use std::collections::BTreeSet;

use apimachinery::field::{BadValue, Error};
use apimachinery::time::Time;
use apimachinery::{At, Errors, Value};

use super::indexes;
use crate::field_rules::same;

/// Whether the condition of this type is `True`.
pub(super) fn is_true(status: &At<'_>, ty: &str) -> bool {
    let conditions = status.get("conditions");
    conditions
        .list()
        .iter()
        .any(|condition| condition.str_at(&["type"]) == Some(ty) && condition.str_at(&["status"]) == Some("True"))
}

/// Validates the status of `object`, which replaces that of `old`.
pub(super) fn validate(object: &Value, old: &Value, errors: &mut Errors) {
    let (root, before) = (At::root(object), At::root(old));
    let (status, before) = (root.get("status"), before.get("status"));
    let change = Change { spec: &root.get("spec"), status: &status, before: &before };
    crate::status::non_negative(&status, &["active", "succeeded", "failed", "ready", "terminating"], errors);
    validate_uncounted(&status, errors);
    change.conditions(errors);
    change.times(errors);
    change.finished(errors);
    change.indexes(errors);
    change.transitions(errors);
}

struct Change<'a> {
    spec: &'a At<'a>,
    status: &'a At<'a>,
    before: &'a At<'a>,
}

impl Change<'_> {
    fn is(&self, ty: &str) -> bool {
        is_true(self.status, ty)
    }

    fn was(&self, ty: &str) -> bool {
        is_true(self.before, ty)
    }

    fn turned(&self, ty: &str) -> bool {
        self.is(ty) != self.was(ty)
    }

    fn changed(&self, field: &str) -> bool {
        !same(self.status.get(field).value(), self.before.get(field).value())
    }

    fn is_finished(&self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn finish_changed(&self) -> bool {
        self.is_finished() != (self.was("Complete") || self.was("Failed"))
    }

    fn wrong_conditions(&self, detail: &str) -> Error {
        Error::invalid(self.status.get("conditions").path(), BadValue::Omitted, detail)
    }

    fn conditions(&self, errors: &mut Errors) {
        let complete = self.is("Complete");
        if (self.turned("Complete") || self.turned("Failed")) && complete && self.is("Failed") {
            errors.push(self.wrong_conditions("cannot set Complete=True and Failed=true conditions"));
        }
        if (self.turned("Complete") || self.turned("FailureTarget")) && complete && self.is("FailureTarget") {
            errors.push(self.wrong_conditions("cannot set Complete=True and FailureTarget=true conditions"));
        }
    }

    fn times(&self, errors: &mut Errors) {
        let (start, end) = (self.status.get("startTime"), self.status.get("completionTime"));
        let complete = self.is("Complete");
        if self.turned("Complete") || self.changed("completionTime") {
            if end.is_present() && !complete {
                errors.push(end.invalid("cannot set completionTime when there is no Complete=True condition"));
            }
            if end.is_absent() && complete {
                errors.push(end.required("completionTime is required for Complete jobs"));
            }
        }
        let times = (Time::parse(start.str()), Time::parse(end.str()));
        if let (true, (Ok(from), Ok(to))) = (self.changed("startTime") || self.changed("completionTime"), times)
            && to < from
        {
            errors.push(end.invalid("must be equal to or after `startTime`"));
        }
        if (self.turned("Failed") || self.changed("failedIndexes")) && self.is("Failed") && !self.is("FailureTarget") {
            let detail = "cannot set Failed=True condition without the FailureTarget=true condition";
            errors.push(self.wrong_conditions(detail));
        }
        if (self.turned("Complete") || self.turned("SuccessCriteriaMet")) && complete && !self.is("SuccessCriteriaMet")
        {
            let detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
            errors.push(self.wrong_conditions(detail));
        }
    }

    fn finished(&self, errors: &mut Errors) {
        let finished = self.is_finished();
        let (active, start) = (self.status.get("active"), self.status.get("startTime"));
        if (self.finish_changed() || self.changed("active")) && finished && active.int() > 0 {
            errors.push(active.invalid("active>0 is invalid for finished job"));
        }
        // A suspended Job with zero completions is complete without a start time.
        let completions = self.spec.get("completions");
        let needs_no_pods = self.spec.get("suspend").bool() && completions.is_present() && completions.int() == 0;
        if (self.finish_changed() || self.changed("startTime")) && !needs_no_pods && finished && start.is_absent() {
            errors.push(start.required("startTime is required for finished job"));
        }
        let uncounted = self.status.get("uncountedTerminatedPods");
        let pods = uncounted.get("failed").len() + uncounted.get("succeeded").len();
        if (self.finish_changed() || self.changed("uncountedTerminatedPods")) && finished && pods > 0 {
            let path = ["status", "uncountedTerminatedPods"];
            let bad_value = crate::workload::bad_value(&uncounted, ("batch", "v1", "Job"), &path);
            errors.push(Error::invalid(uncounted.path(), bad_value, "must be empty for finished job"));
        }
    }

    fn indexes(&self, errors: &mut Errors) {
        let completions = self.spec.get("completions");
        let (done, failed) = (self.status.get("completedIndexes"), self.status.get("failedIndexes"));
        let (done_changed, failed_changed) = (self.changed("completedIndexes"), self.changed("failedIndexes"));
        let unreadable = |at: &At<'_>, called: &str| {
            let error = indexes::parse(at.str(), completions.int()).err()?;
            Some(at.invalid(format!("error parsing {called}: {error}")))
        };
        let per_index = self.spec.get("backoffLimitPerIndex").is_present();
        if done_changed && completions.is_present() {
            errors.extend(unreadable(&done, "completedIndexes"));
        }
        if failed_changed && completions.is_present() && per_index && failed.is_present() {
            errors.extend(unreadable(&failed, "failedIndexes"));
        }
        if done_changed && !done.is_empty() && self.spec.get("completionMode").str() != "Indexed" {
            let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
            errors.push(done.invalid(detail));
        }
        if failed_changed && !per_index && failed.is_present() {
            errors.push(failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null"));
        }
        if (done_changed || failed_changed)
            && completions.is_present()
            && let Some(index) = indexes::first_common(done.str(), failed.str(), completions.int())
        {
            errors.push(failed.invalid(format!("failedIndexes and completedIndexes overlap at index: {index}")));
        }
    }

    fn transitions(&self, errors: &mut Errors) {
        let terminating = self.status.get("terminating");
        if (self.finish_changed() || self.changed("terminating")) && self.is_finished() && terminating.int() > 0 {
            errors.push(terminating.invalid("terminating>0 is invalid for finished job"));
        }
        let (ready, active) = (self.status.get("ready"), self.status.get("active"));
        if (self.changed("ready") || self.changed("active")) && ready.int() > active.int() {
            errors.push(ready.invalid("cannot set more ready pods than active"));
        }
        let met = self.is("SuccessCriteriaMet");
        for other in ["Failed", "FailureTarget"] {
            if met && self.is(other) {
                let detail = format!("cannot set SuccessCriteriaMet=True and {other}=true conditions");
                errors.push(self.wrong_conditions(&detail));
            }
        }
        if self.spec.get("successPolicy").is_present() && !met && self.is("Complete") {
            let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
            errors.push(self.wrong_conditions(detail));
        }
        for ty in ["Failed", "Complete", "FailureTarget"] {
            if self.was(ty) && !self.is(ty) {
                errors.push(self.wrong_conditions(&format!("cannot disable the terminal {ty}=True condition")));
            }
        }
        self.counters(errors);
        if self.was("SuccessCriteriaMet") && !met {
            errors.push(self.wrong_conditions("cannot disable the SuccessCriteriaMet=True condition"));
        }
        if self.was("Complete") && !self.was("SuccessCriteriaMet") && met {
            let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
            errors.push(self.wrong_conditions(detail));
        }
    }

    fn counters(&self, errors: &mut Errors) {
        let scalable = self.spec.get("completionMode").str() == "Indexed"
            && self.spec.get("completions").value() == self.spec.get("parallelism").value();
        for (field, may_fall) in [("failed", false), ("succeeded", scalable)] {
            let (new, old) = (self.status.get(field), self.before.get(field));
            if !may_fall && new.int() < old.int() {
                let detail = format!("cannot decrease the {field} counter");
                errors.push(Error::invalid(new.path(), new.int(), detail));
            }
        }
        let (start, end) = (self.status.get("startTime"), self.status.get("completionTime"));
        if end.is_present() && self.before.get("completionTime").is_present() && self.changed("completionTime") {
            errors.push(end.invalid("field is immutable"));
        }
        let started = self.before.get("startTime").is_present();
        if started && self.changed("startTime") && !self.spec.get("suspend").bool() {
            errors.push(start.invalid("field is immutable for unsuspended job once set"));
        }
    }
}

fn validate_uncounted(status: &At<'_>, errors: &mut Errors) {
    let uncounted = status.get("uncountedTerminatedPods");
    let mut seen = BTreeSet::new();
    for list in ["succeeded", "failed"] {
        let pods = uncounted.get(list);
        for pod in pods.items() {
            if pod.str().is_empty() {
                errors.push(Error::invalid(pod.path(), "", "must not be empty"));
            } else if !seen.insert(pod.str().to_owned()) {
                errors.push(pod.duplicate());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn check(new: Value, old: Value, expect: &[&str]) {
        let job = |status: Value| value!({"spec": {"completions": 3}, "status": (status)});
        let mut errors = Errors::new();
        validate(&job(new), &job(old), &mut errors);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn complete_job_has_start_and_completion_time_and_met_its_criteria() {
        let conditions = value!([
            {"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}
        ]);
        let complete = value!({
            "startTime": "2024-01-01T00:00:00Z", "completionTime": "2024-01-01T00:01:00Z", "conditions": (conditions.clone())
        });
        check(complete, value!({}), &[]);
        check(
            value!({"conditions": [{"type": "Complete", "status": "True"}]}),
            value!({}),
            &[
                "status.completionTime: Required value: completionTime is required for Complete jobs",
                "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
                "status.startTime: Required value: startTime is required for finished job",
            ],
        );
    }

    #[test]
    fn counters_and_terminal_conditions_cannot_be_reverted() {
        check(
            value!({"failed": 1}),
            value!({"failed": 2, "conditions": [{"type": "FailureTarget", "status": "True"}]}),
            &[
                "status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition",
                "status.failed: Invalid value: 1: cannot decrease the failed counter",
            ],
        );
    }
}
