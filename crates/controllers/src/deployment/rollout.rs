//! Deployment rollout: creates and scales up the new ReplicaSet, or scales down the old ones, within the bounds.

use api::view::Pod;
use apimachinery::Value;
use apimachinery::meta::Meta;
use controller::Action;

use super::sets::{Sets, max_unavailable};
use super::{Observation, is_recreate, new_set, replicas};

/// The result of a step in addition to the scaled ReplicaSets.
#[derive(Default)]
pub(super) struct RolloutResult {
    /// The creation of the new ReplicaSet.
    pub create: Option<Action>,
    /// Whether another object has the name of the new ReplicaSet.
    pub collision: bool,
}

pub(super) fn roll(sets: &mut Sets<'_>, observed: &Observation<'_>) -> RolloutResult {
    sets.annotate_new();
    if is_recreate(sets.deployment) { recreate(sets, observed) } else { rolling(sets, observed) }
}

fn rolling(sets: &mut Sets<'_>, observed: &Observation<'_>) -> RolloutResult {
    let desired_replicas = replicas(sets.deployment);
    let Some(new) = &sets.new else { return make(sets, observed) };
    let size = new.size;
    // Scale the new ReplicaSet up, or down if it is too large; otherwise scale the old ones down.
    let next = if size > desired_replicas { desired_replicas } else { new_set::growth(sets, size) };
    if next == size {
        shrink_old(sets);
    } else if let Some(new) = &mut sets.new {
        new.size = next;
    }
    RolloutResult::default()
}

fn recreate(sets: &mut Sets<'_>, observed: &Observation<'_>) -> RolloutResult {
    let mut shrunk = false;
    for old in &mut sets.old {
        shrunk |= old.size > 0;
        old.size = 0;
    }
    if shrunk || old_pods_run(sets, observed) {
        return RolloutResult::default();
    }
    let desired_replicas = replicas(sets.deployment);
    match &mut sets.new {
        Some(new) => {
            new.size = desired_replicas;
            RolloutResult::default()
        }
        None => make(sets, observed),
    }
}

fn make(sets: &Sets<'_>, observed: &Observation<'_>) -> RolloutResult {
    match observed.namesake {
        // An object with another owner or template has the name: increment the collision count.
        Some(_) => RolloutResult { create: None, collision: true },
        None => RolloutResult { create: Some(new_set::create(sets)), collision: false },
    }
}

/// Scales old ReplicaSets down: first their unavailable pods, then those not needed to satisfy maxUnavailable.
fn shrink_old(sets: &mut Sets<'_>) {
    let deployment = sets.deployment;
    let min_available = replicas(deployment) - max_unavailable(deployment);
    let new_missing = sets.new.as_ref().map_or(0, |new| new.size - new.status("availableReplicas"));
    let mut spare = sets.total() - min_available - new_missing;
    if spare <= 0 {
        return;
    }
    for old in &mut sets.old {
        let unhealthy = old.size - old.status("availableReplicas").min(old.size);
        let less = unhealthy.min(spare);
        old.size -= less;
        spare -= less;
    }
    // A ReplicaSet just scaled down may still report more available replicas than its new size.
    let available: i64 = sets.all().map(|set| set.status("availableReplicas").min(set.size)).sum();
    let mut surplus = (available - min_available).min(spare);
    for old in &mut sets.old {
        let less = old.size.min(surplus.max(0));
        old.size -= less;
        surplus -= less;
    }
}

/// Whether any pod of an old ReplicaSet still runs.
fn old_pods_run(sets: &Sets<'_>, observed: &Observation<'_>) -> bool {
    let new = sets.new.as_ref().map(|new| new.meta().uid());
    let of_new = |pod: &Value| Meta::of(pod).controller().is_some_and(|owner| Some(owner.uid()) == new);
    observed.pods.iter().any(|pod| !Pod(pod).is_terminal() && !of_new(pod))
}
