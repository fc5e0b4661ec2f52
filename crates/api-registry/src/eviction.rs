//! Eviction: checks the PodDisruptionBudget of a pod and updates the budget.

use api::view::{self, Pod};
use apimachinery::field::Cause;
use apimachinery::meta::Meta;
use apimachinery::status::{GroupName, Status};
use apimachinery::time::Time;
use apimachinery::{Object, Value, labels};

use crate::condition;

/// Maximum number of evictions that the disruption controller has not confirmed; beyond it evictions are rejected.
const DISRUPTED_PODS_MAX: usize = 2000;
/// Retry-After in seconds for a budget whose status is outdated.
const RETRY_SECONDS: u32 = 10;

/// The permission to evict a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum EvictionPermission {
    /// No budget applies, or the pod does not count as healthy; valid while the pod is unchanged.
    Unrestricted,
    /// The budget allows the disruption and is replaced by this object.
    UpdateBudget(Box<Value>),
}

/// Checks whether `pod` may be evicted, by the budgets of its namespace.
pub fn evaluate(pod: &Value, budgets: &[Value], now: Time) -> Result<EvictionPermission, Status> {
    if Pod(pod).ignores_disruption_budgets() {
        return Ok(EvictionPermission::Unrestricted);
    }
    let own: Vec<&Value> = budgets.iter().filter(|budget| guards(budget, pod)).collect();
    let budget = match own.as_slice() {
        [] => return Ok(EvictionPermission::Unrestricted),
        [budget] => *budget,
        _ => {
            let message =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status { success: false, message: message.to_owned(), code: 500, ..Status::success() });
        }
    };
    if !Pod(pod).is_ready() && spares_unhealthy(budget) {
        return Ok(EvictionPermission::Unrestricted);
    }
    check(budget)?;
    Ok(EvictionPermission::UpdateBudget(Box::new(spend(budget, Meta::of(pod).name(), now))))
}

/// Sets the DisruptionTarget condition.
pub fn mark(pod: &mut Value, now: Time) {
    let mut found = Object::new();
    found.insert("type", "DisruptionTarget");
    found.insert("status", "True");
    found.insert("reason", "EvictionByEvictionAPI");
    found.insert("message", "Eviction API: evicting");
    found.insert("lastProbeTime", Value::Null);
    found.insert("lastTransitionTime", now.to_seconds().to_string().as_str());
    let generation = Meta::of(pod).generation();
    if generation > 0 {
        found.insert("observedGeneration", generation);
    }
    condition::set(pod, found);
}

fn guards(budget: &Value, pod: &Value) -> bool {
    let selector = labels::from_object(budget.at(&["spec", "selector"]));
    selector.is_ok_and(|selector| selector.matches_object(pod))
}

/// Whether an unready pod may be evicted without using the budget (unhealthyPodEvictionPolicy).
fn spares_unhealthy(budget: &Value) -> bool {
    let (healthy, desired) = (number(budget, "currentHealthy"), number(budget, "desiredHealthy"));
    budget.str_at(&["spec", "unhealthyPodEvictionPolicy"]) == Some("AlwaysAllow") || (healthy >= desired && desired > 0)
}

/// Rejects the eviction if the budget allows no disruption.
fn check(budget: &Value) -> Result<(), Status> {
    const WOULD_VIOLATE_BUDGET: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
    let name = Meta::of(budget).name();
    let too_many_requests = |seconds: u32, message: String| {
        let mut status = Status::too_many_requests(WOULD_VIOLATE_BUDGET, seconds);
        let cause = Cause { reason: "DisruptionBudget".to_owned(), message, field: String::new() };
        status.details.get_or_insert_default().causes.push(cause);
        Err(status)
    };
    let forbid = |detail: &str| Err(Status::forbidden(GroupName::new("policy", "poddisruptionbudget"), name, detail));
    if number(budget, "observedGeneration") < Meta::of(budget).generation() {
        return too_many_requests(
            RETRY_SECONDS,
            format!("The disruption budget {name} is still being processed by the server."),
        );
    }
    let allowed = number(budget, "disruptionsAllowed");
    if allowed < 0 {
        return forbid("pdb disruptions allowed is negative");
    }
    let disrupted = budget.at(&["status", "disruptedPods"]).and_then(Value::as_object);
    if disrupted.is_some_and(|pods| pods.len() > DISRUPTED_PODS_MAX) {
        return forbid("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed > 0 {
        return Ok(());
    }
    let failed = view::condition(budget, "DisruptionAllowed").filter(|condition| {
        condition.str_at(&["status"]) == Some("False") && condition.str_at(&["reason"]) == Some("SyncFailed")
    });
    let (desired, healthy) = (number(budget, "desiredHealthy"), number(budget, "currentHealthy"));
    too_many_requests(
        0,
        match failed {
            Some(condition) => format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
                condition.text_at(&["message"])
            ),
            None => format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"),
        },
    )
}

/// Returns the budget after an eviction, with the pod in disruptedPods.
fn spend(budget: &Value, pod: &str, now: Time) -> Value {
    let mut budget = budget.clone();
    let left = number(&budget, "disruptionsAllowed") - 1;
    let generation = number(&budget, "observedGeneration");
    let now = now.to_seconds().to_string();
    if let Some(Value::Object(status)) = budget.get_mut("status") {
        status.insert("disruptionsAllowed", left);
        let disrupted = status.get_or_insert_with("disruptedPods", Value::object);
        if disrupted.is_null() {
            *disrupted = Value::object();
        }
        if let Value::Object(pods) = disrupted {
            pods.insert(pod, now.as_str());
        }
    }
    if left == 0 {
        let mut insufficient = Object::new();
        insufficient.insert("type", "DisruptionAllowed");
        insufficient.insert("status", "False");
        insufficient.insert("reason", "InsufficientPods");
        insufficient.insert("message", "");
        insufficient.insert("lastTransitionTime", now.as_str());
        if generation > 0 {
            insufficient.insert("observedGeneration", generation);
        }
        condition::set(&mut budget, insufficient);
    }
    budget
}

fn number(budget: &Value, field: &str) -> i64 {
    budget.int_at(&["status", field]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    const NOW: Time = Time::from_unix(1_700_000_000, 0);

    fn pod(phase: &str, ready: &str) -> Value {
        value!({
            "metadata": {"name": "p", "labels": {"app": "web"}, "generation": 2},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
        })
    }

    fn budget(app: &str, allowed: i64, healthy: i64, desired: i64) -> Value {
        value!({
            "metadata": {"name": "b", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {
                "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired
            },
        })
    }

    fn check(pod: &Value, budgets: &[Value], expect: &str) {
        let found = match evaluate(pod, budgets, NOW) {
            Ok(EvictionPermission::Unrestricted) => "free".to_owned(),
            Ok(EvictionPermission::UpdateBudget(budget)) => {
                format!("spend, {} left", number(&budget, "disruptionsAllowed"))
            }
            Err(status) => {
                let cause = status.details.as_ref().and_then(|details| details.causes.first());
                let cause = cause.map(|cause| format!(" {}: {}", cause.reason, cause.message)).unwrap_or_default();
                let again = status.retry_after_seconds().map(|seconds| format!(" after {seconds}")).unwrap_or_default();
                format!("{}{again}{cause}", status.code)
            }
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn pod_is_evicted_if_its_budget_allows_a_disruption() {
        let ready = pod("Running", "True");
        check(&ready, &[], "free");
        check(&ready, &[budget("other", 0, 1, 1)], "free");
        check(&ready, &[budget("web", 2, 3, 1)], "spend, 1 left");
        check(
            &ready,
            &[budget("web", 0, 1, 1)],
            "429 DisruptionBudget: The disruption budget b needs 1 healthy pods and has 1 currently",
        );
        check(&ready, &[budget("web", -1, 1, 1)], "403");
        check(&ready, &[budget("web", 1, 1, 1), budget("web", 1, 1, 1)], "500");
    }

    #[test]
    fn terminal_and_pending_pods_are_evicted_without_a_budget() {
        for phase in ["Pending", "Succeeded", "Failed"] {
            check(&pod(phase, "False"), &[budget("web", 0, 0, 1)], "free");
        }
        let mut going = pod("Running", "True");
        if let Some(Value::Object(metadata)) = going.get_mut("metadata") {
            metadata.insert("deletionTimestamp", "2026-01-01T00:00:00Z");
        }
        check(&going, &[budget("web", 0, 0, 1)], "free");
    }

    #[test]
    fn unready_pod_is_evicted_according_to_the_unhealthy_pod_eviction_policy() {
        let unready = pod("Running", "False");
        check(&unready, &[budget("web", 0, 2, 2)], "free");
        check(
            &unready,
            &[budget("web", 0, 1, 2)],
            "429 DisruptionBudget: The disruption budget b needs 2 healthy pods and has 1 currently",
        );
        let mut generous = budget("web", 0, 1, 2);
        if let Some(Value::Object(spec)) = generous.get_mut("spec") {
            spec.insert("unhealthyPodEvictionPolicy", "AlwaysAllow");
        }
        check(&unready, &[generous], "free");
    }

    #[test]
    fn outdated_budget_rejects_with_retry_after() {
        let mut late = budget("web", 1, 1, 1);
        if let Some(Value::Object(metadata)) = late.get_mut("metadata") {
            metadata.insert("generation", 2);
        }
        check(
            &pod("Running", "True"),
            &[late],
            "429 after 10 DisruptionBudget: The disruption budget b is still being processed by the server.",
        );
    }

    #[test]
    fn eviction_decrements_disruptions_allowed_and_updates_the_condition() {
        let Ok(EvictionPermission::UpdateBudget(spent)) =
            evaluate(&pod("Running", "True"), &[budget("web", 1, 2, 1)], NOW)
        else {
            panic!("the budget has one disruption left");
        };
        assert_eq!(spent["status"]["disruptedPods"], value!({"p": "2023-11-14T22:13:20Z"}));
        assert_eq!(spent["status"]["conditions"][0]["reason"], "InsufficientPods".into());
        let mut pod = pod("Running", "True");
        mark(&mut pod, NOW);
        let marked = view::condition(&pod, "DisruptionTarget").expect("it is marked");
        assert_eq!(marked["observedGeneration"], 2.into());
        assert_eq!(marked["reason"], "EvictionByEvictionAPI".into());
    }
}
