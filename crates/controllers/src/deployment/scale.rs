//! Deployment scaling: a change of `spec.replicas` scales all ReplicaSets proportionally, also during a rollout.

use super::replicas;
use super::sets::{DESIRED, MAX, Set, Sets, max_surge};

/// Whether a ReplicaSet was last scaled for another value of `spec.replicas`.
pub(super) fn is_needed(sets: &Sets<'_>) -> bool {
    let desired_replicas = replicas(sets.deployment);
    sets.all()
        .filter(|set| set.size > 0)
        .any(|set| set.number(DESIRED).is_some_and(|desired| desired != desired_replicas))
}

pub(super) fn scale(sets: &mut Sets<'_>) {
    let desired_replicas = replicas(sets.deployment);
    let active = sets.all().filter(|set| set.size > 0).count();
    if active <= 1 {
        if let Some(only) = active_or_latest(sets) {
            only.size = desired_replicas;
        }
        return;
    }
    if is_saturated(sets) {
        sets.old.iter_mut().for_each(|old| old.size = 0);
    } else if !super::is_recreate(sets.deployment) {
        in_proportion(sets);
    }
}

/// Returns the only ReplicaSet with pods, or else the newest.
fn active_or_latest<'s, 'a>(sets: &'s mut Sets<'a>) -> Option<&'s mut Set<'a>> {
    if sets.all().any(|set| set.size > 0) {
        return sets.all_mut().find(|set| set.size > 0);
    }
    match &mut sets.new {
        Some(new) => Some(new),
        None => sets.old.last_mut(),
    }
}

/// Whether the new ReplicaSet has all desired replicas and all are available.
fn is_saturated(sets: &Sets<'_>) -> bool {
    let desired_replicas = replicas(sets.deployment);
    sets.new.as_ref().is_some_and(|new| {
        new.size == desired_replicas
            && new.number(DESIRED) == Some(desired_replicas)
            && new.status("availableReplicas") == desired_replicas
    })
}

fn in_proportion(sets: &mut Sets<'_>) {
    let (desired_replicas, surge) = (replicas(sets.deployment), max_surge(sets.deployment));
    let allowed = if desired_replicas > 0 { desired_replicas + surge } else { 0 };
    let to_add = allowed - sets.total();
    let was_total = sets.deployment.int_at(&["status", "replicas"]).unwrap_or(0);
    let mut active: Vec<&mut Set<'_>> = sets.all_mut().filter(|set| set.size > 0).collect();
    // The largest ReplicaSets come first; of equal ones the newer when scaling up, the older when scaling down.
    active.reverse();
    if to_add <= 0 {
        active.reverse();
    }
    active.sort_by_key(|set| std::cmp::Reverse(set.size));
    let mut added = 0;
    for set in &mut active {
        let share = share(set, desired_replicas, desired_replicas + surge, was_total);
        let left = to_add - added;
        let share = if to_add > 0 { share.min(left) } else { share.max(left) };
        let share = if to_add == 0 { 0 } else { share };
        set.size += share;
        added += share;
    }
    if let Some(largest) = active.first_mut() {
        largest.size = (largest.size + to_add - added).max(0);
    }
}

/// Returns the change of a ReplicaSet's size that keeps its proportion of the total.
fn share(set: &Set<'_>, desired_replicas: i64, allowed: i64, was_total: i64) -> i64 {
    if desired_replicas == 0 {
        return -set.size;
    }
    let before = set.number(MAX).filter(|max| *max > 0).unwrap_or(was_total);
    if before == 0 {
        return 0;
    }
    // Rounds half away from zero, as Go's math.Round.
    let size = (set.size as f64 * allowed as f64 / before as f64).round() as i64;
    size - set.size
}
