//! Job policies: podFailurePolicy and successPolicy.

use apimachinery::Value;
use apimachinery::meta::Meta;

use super::indexes::Indexes;
use crate::condition;

/// The consequence of a failed pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodFailureAction {
    /// The failure counts towards the back-off limit.
    Count,
    /// The failure is not counted and the pod is replaced.
    Ignore,
    /// The index fails.
    FailIndex,
    /// The Job fails with this message.
    FailJob(String),
}

/// Applies the podFailurePolicy to a failed pod.
pub(super) fn evaluate_failure(job: &Value, pod: &Value) -> PodFailureAction {
    let rules = job.list_at(&["spec", "podFailurePolicy", "rules"]);
    for (at, rule) in rules.iter().enumerate() {
        let Some(message) = matched(rule, pod) else { continue };
        return match rule.text_at(&["action"]) {
            "Ignore" => PodFailureAction::Ignore,
            "FailIndex" => PodFailureAction::FailIndex,
            "FailJob" => PodFailureAction::FailJob(format!("{message} matching FailJob rule at index {at}")),
            _ => PodFailureAction::Count,
        };
    }
    PodFailureAction::Count
}

/// Returns the message of the first success policy rule that is met.
pub(super) fn succeeds(job: &Value, succeeded: &Indexes, completions: u32) -> Option<String> {
    let rules = job.list_at(&["spec", "successPolicy", "rules"]);
    let met = |rule: &&Value| {
        let count = rule.get("succeededCount").and_then(Value::as_int).and_then(|count| usize::try_from(count).ok());
        match rule.str_at(&["succeededIndexes"]) {
            Some(text) => {
                let indexes = Indexes::parse(text, completions);
                succeeded.in_common(&indexes) >= count.unwrap_or(indexes.len())
            }
            None => count.is_some_and(|count| succeeded.len() >= count),
        }
    };
    let at = rules.iter().position(|rule| met(&rule))?;
    Some(format!("Matched rules at index {at}"))
}

/// Returns a description of the match if the pod matches the rule.
fn matched(rule: &Value, pod: &Value) -> Option<String> {
    let meta = Meta::of(pod);
    let pod_name = format!("{}/{}", meta.namespace(), meta.name());
    if let Some(codes) = rule.get("onExitCodes").filter(|codes| !codes.is_null()) {
        let (container, code) = exit_code(codes, pod)?;
        return Some(format!("Container {container} for pod {pod_name} failed with exit code {code}"));
    }
    let patterns = rule.list_at(&["onPodConditions"]);
    let found = patterns.iter().find_map(|pattern| {
        let kind = pattern.str_at(&["type"])?;
        let status = condition::find(pod, kind)?.str_at(&["status"])?;
        (pattern.str_at(&["status"]).unwrap_or("True") == status).then_some(kind)
    })?;
    Some(format!("Pod {pod_name} has condition {found}"))
}

/// Returns the first container that exited with one of the codes. Exit code 0 never matches.
fn exit_code<'a>(codes: &Value, pod: &'a Value) -> Option<(&'a str, i64)> {
    let only = codes.str_at(&["containerName"]);
    let values = codes.list_at(&["values"]);
    let wants = |code: i64| {
        let listed = values.iter().any(|value| value.as_int() == Some(code));
        match codes.str_at(&["operator"]) {
            Some("In") => listed,
            Some("NotIn") => !listed,
            _ => false,
        }
    };
    let lists = ["containerStatuses", "initContainerStatuses"].map(|field| pod.at(&["status", field]));
    let statuses = lists.into_iter().flatten().filter_map(Value::as_array).flatten();
    statuses
        .filter_map(|status| {
            let name = status.str_at(&["name"])?;
            Some((name, status.at(&["state", "terminated", "exitCode"])?.as_int()?))
        })
        .find(|(name, code)| *code != 0 && only.is_none_or(|only| only == *name) && wants(*code))
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn first_matching_failure_policy_rule_applies() {
        let pod = value!({"metadata": {"namespace": "a", "name": "p"}, "status": {
            "conditions": [{"type": "DisruptionTarget", "status": "True"}],
            "containerStatuses": [{"name": "ok", "state": {"terminated": {"exitCode": 0}}},
                {"name": "c", "state": {"terminated": {"exitCode": 42}}}]}});
        let check = |rules: Value, expect: PodFailureAction| {
            assert_eq!(evaluate_failure(&value!({"spec": {"podFailurePolicy": {"rules": rules}}}), &pod), expect);
        };
        let exit = |action: &str, operator: &str, code: i64| value!({"action": action, "onExitCodes": {"operator": operator, "values": [code]}});
        let fail_job = |message: &str| PodFailureAction::FailJob(format!("{message} matching FailJob rule at index 0"));
        check(value!([]), PodFailureAction::Count);
        check(value!([(exit("FailJob", "In", 42))]), fail_job("Container c for pod a/p failed with exit code 42"));
        check(value!([(exit("FailJob", "In", 7)), (exit("Ignore", "NotIn", 7))]), PodFailureAction::Ignore);
        check(value!([(exit("FailJob", "In", 0))]), PodFailureAction::Count);
        check(
            value!([{"action": "FailIndex", "onExitCodes": {"containerName": "ok", "operator": "NotIn", "values": [1]}}]),
            PodFailureAction::Count,
        );
        let disrupted =
            value!([{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]);
        check(disrupted, fail_job("Pod a/p has condition DisruptionTarget"));
    }

    #[test]
    fn success_policy_requires_enough_succeeded_indexes() {
        let check = |rule: Value, succeeded: &str, expect: bool| {
            let job = value!({"spec": {"successPolicy": {"rules": [rule]}}});
            assert_eq!(succeeds(&job, &Indexes::parse(succeeded, 10), 10).is_some(), expect, "{job} {succeeded}");
        };
        check(value!({"succeededCount": 2}), "0", false);
        check(value!({"succeededCount": 2}), "0,7", true);
        check(value!({"succeededIndexes": "0,3-4"}), "0,3", false);
        check(value!({"succeededIndexes": "0,3-4"}), "0,3,4", true);
        check(value!({"succeededIndexes": "0,3-4", "succeededCount": 1}), "4,9", true);
        check(value!({"succeededIndexes": "0,3-4", "succeededCount": 1}), "9", false);
    }
}
