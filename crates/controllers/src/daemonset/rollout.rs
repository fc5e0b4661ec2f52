//! DaemonSet rolling update: deletes old pods first, or creates new pods first if maxSurge allows it.

use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Value, value};
use controller::Action;

use super::{Fleet, NodeState, make};
use crate::int_or_percent;

/// Whether maxSurge allows new pods before old ones are deleted.
pub(super) fn surges(set: &Value) -> bool {
    bounds(set, 1).0 > 0
}

/// Returns the actions of the next update step.
pub(super) fn roll(fleet: &Fleet<'_>, now: Time) -> Vec<Action> {
    if fleet.set.str_at(&["spec", "updateStrategy", "type"]) == Some("OnDelete") {
        return Vec::new();
    }
    let desired = fleet.nodes.iter().filter(|node_state| node_state.should_run).count();
    let (surge, unavailable) = bounds(fleet.set, i64::try_from(desired).unwrap_or(i64::MAX));
    if surge > 0 { grow_first(fleet, surge, now) } else { shrink_first(fleet, unavailable, now) }
}

/// Returns maxSurge and maxUnavailable as numbers of nodes.
fn bounds(set: &Value, nodes: i64) -> (i64, i64) {
    let rolling = |field| set.at(&["spec", "updateStrategy", "rollingUpdate", field]);
    if set.str_at(&["spec", "updateStrategy", "type"]) == Some("OnDelete") {
        return (0, 0);
    }
    let surge = int_or_percent::up(rolling("maxSurge"), nodes);
    let unavailable = int_or_percent::up(rolling("maxUnavailable").or(Some(&value!(1))), nodes);
    // If both were zero, the update could not proceed.
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// Returns the updated and the outdated pod of a node; `None` if there are several of either.
fn pair<'a>(fleet: &Fleet<'a>, node_state: &NodeState<'a>) -> Option<(Option<&'a Value>, Option<&'a Value>)> {
    let alive = node_state.pods.iter().copied().filter(|pod| !Meta::of(pod).is_deleting());
    let (new, old): (Vec<&Value>, Vec<&Value>) = alive.partition(|pod| fleet.is_updated(pod));
    (new.len() <= 1 && old.len() <= 1).then(|| (new.first().copied(), old.first().copied()))
}

fn shrink_first(fleet: &Fleet<'_>, unavailable: i64, now: Time) -> Vec<Action> {
    let mut missing = 0;
    let (mut useless, mut candidates) = (Vec::new(), Vec::new());
    for node_state in fleet.nodes.iter().filter(|node_state| !node_state.pods.is_empty()) {
        match pair(fleet, node_state) {
            None | Some((None, None) | (Some(_), Some(_))) => missing += 1,
            Some((Some(new), None)) => missing += i64::from(!fleet.is_available(new, now)),
            Some((None, Some(old))) if fleet.is_available(old, now) => candidates.push(old),
            Some((None, Some(old))) => useless.push(old),
        }
    }
    let remaining_unavailable = usize::try_from(unavailable - missing).unwrap_or(0);
    // Unavailable pods are replaced regardless of maxUnavailable.
    let to_delete = useless.into_iter().chain(candidates.into_iter().take(remaining_unavailable));
    to_delete.map(|pod| make::delete(fleet.set, pod)).collect()
}

fn grow_first(fleet: &Fleet<'_>, surge: i64, now: Time) -> Vec<Action> {
    let mut surging = 0;
    let (mut needed, mut candidates, mut done) = (Vec::new(), Vec::new(), Vec::new());
    for node_state in fleet.nodes.iter().filter(|node_state| !node_state.pods.is_empty()) {
        match pair(fleet, node_state) {
            Some((_, None)) => {}
            Some((None, Some(old))) if fleet.is_available(old, now) => candidates.push(node_state.name),
            Some((None, Some(_))) => needed.push(node_state.name),
            Some((Some(new), Some(old))) if fleet.is_available(new, now) => done.push(old),
            None | Some((Some(_), Some(_))) => surging += 1,
        }
    }
    let remaining_surge = usize::try_from(surge - surging).unwrap_or(0);
    let nodes: Vec<&str> = needed.into_iter().chain(candidates.into_iter().take(remaining_surge)).collect();
    let mut actions: Vec<Action> = done.into_iter().map(|pod| make::delete(fleet.set, pod)).collect();
    actions.extend(make::create(fleet.set, fleet.hash, &nodes, &fleet.pods));
    actions
}
