//! Deployment controller: one ReplicaSet per template; rollouts scale the ReplicaSets within the bounds.
//!
//! ```text
//!   adopt and release ─> paused, or replicas changed? ──yes──> scale all proportionally ─────────────────────┐
//!                                   │ no                                                                     v
//!                        create the new ReplicaSet ─> scale it up, else the old ones down ─> prune history ─> status
//! ```

mod new_set;
mod rollout;
mod scale;
mod sets;
mod status;

use std::convert::Infallible;

use api::resources::{DEPLOYMENTS, EVENTS, PODS, REPLICA_SETS};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value};
use controller::{Action, Cache, Controller, EventType, Plan, Regarding, Rejection, Write, kinds};

use crate::adoption;
use sets::Sets;

pub struct Deployment;

/// A Deployment with the ReplicaSets and pods that its plan depends on.
#[derive(Debug)]
pub struct Observation<'a> {
    deployment: &'a Value,
    controlled: Vec<&'a Value>,
    orphans: Vec<&'a Value>,
    /// The existing object with the name of the new ReplicaSet.
    namesake: Option<&'a Value>,
    /// The pods of its ReplicaSets. Collected only for strategy Recreate, which waits until old pods have terminated.
    pods: Vec<&'a Value>,
    rejection: Option<&'a Rejection>,
}

impl Controller for Deployment {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "deployment-controller";
    const READS: &'static [GroupResource] = &[DEPLOYMENTS, REPLICA_SETS, PODS];
    const WRITES: &'static [Write] = &[(REPLICA_SETS, ""), (DEPLOYMENTS, "status"), (EVENTS, "")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            DEPLOYMENTS => keys.push(Key::of(object)),
            REPLICA_SETS => adoption::concerned(object, "Deployment", cache.of(DEPLOYMENTS), keys),
            _ => keys.extend(waits_for(cache, object)),
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let deployment = cache.get(DEPLOYMENTS, key)?;
        let controlled: Vec<&Value> = cache.controlled_by(REPLICA_SETS, Meta::of(deployment).uid()).collect();
        let name = Key::new(key.namespace.clone(), new_set::name(deployment));
        let of_set = |set: &&'a Value| cache.controlled_by(PODS, Meta::of(set).uid());
        let pods = if is_recreate(deployment) { controlled.iter().flat_map(of_set).collect() } else { Vec::new() };
        Some(Observation {
            deployment,
            controlled,
            orphans: cache.orphans(REPLICA_SETS, &key.namespace).collect(),
            namesake: cache.get(REPLICA_SETS, &name),
            pods,
            rejection: cache.rejection(),
        })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let deployment = observed.deployment;
        let Some(selector) = adoption::selector(deployment) else { return selects_all(deployment) };
        let (controlled, orphans) = (observed.controlled.iter().copied(), observed.orphans.iter().copied());
        let claims = adoption::claim(deployment, &selector, &kinds::REPLICA_SETS, controlled, orphans);
        if !claims.actions.is_empty() {
            return Plan { actions: claims.actions, ..Plan::default() };
        }
        let mut sets = Sets::new(deployment, claims.owned);
        if Meta::of(deployment).is_deleting() {
            return finish(sets, Vec::new(), status::plain(deployment), now);
        }
        if is_paused(deployment) || scale::is_needed(&sets) {
            sets.annotate_new();
            scale::scale(&mut sets);
            let old = if is_paused(deployment) { sets.beyond_history() } else { Vec::new() };
            return finish(sets, old, status::plain(deployment), now);
        }
        let made = rollout::roll(&mut sets, observed);
        let complete = status::is_complete(deployment, &sets);
        let mut extra = if complete { sets.beyond_history() } else { Vec::new() };
        extra.extend(made.create);
        finish(sets, extra, status::rollout(deployment, made.collision, observed.rejection), now)
    }
}

/// Returns `spec.replicas`, 1 by default.
pub fn replicas(deployment: &Value) -> i64 {
    deployment.int_at(&["spec", "replicas"]).unwrap_or(1)
}

fn finish(sets: Sets<'_>, extra: Vec<Action>, how: status::StatusInputs<'_>, now: Time) -> Plan {
    let status = status::of(&sets, how, now);
    let mut plan = Plan { actions: sets.into_updates(), ..Plan::default() };
    plan.actions.extend(extra);
    plan.actions.extend(status.update);
    if let Some(time) = status.wake_at {
        plan.wake(time);
    }
    plan
}

/// Reports a selector that matches all pods. Old API versions allowed it; the Deployment is not reconciled.
fn selects_all(deployment: &Value) -> Plan {
    let message = "This deployment is selecting all pods. A non-empty selector is required.".to_owned();
    let regarding = Regarding::object(deployment);
    let event = Action::Event { regarding, kind: EventType::Warning, reason: "SelectingAll", message };
    let mut plan = Plan::waiting("the selector is empty or invalid");
    if let Some(update) = status::seen(deployment) {
        plan.actions = vec![event, update];
    }
    plan
}

fn is_paused(deployment: &Value) -> bool {
    deployment.is_true_at(&["spec", "paused"])
}

fn is_recreate(deployment: &Value) -> bool {
    deployment.str_at(&["spec", "strategy", "type"]) == Some("Recreate")
}

/// Returns the Deployment with strategy Recreate that waits for the pod's termination.
fn waits_for(cache: &Cache, pod: &Value) -> Option<Key> {
    let meta = Meta::of(pod);
    let set = meta.controller().filter(|owner| owner.kind() == "ReplicaSet")?;
    let set = cache.get(REPLICA_SETS, &Key::new(meta.namespace(), set.name()))?;
    let owner = Meta::of(set).controller().filter(|owner| owner.kind() == "Deployment")?;
    let key = Key::new(meta.namespace(), owner.name());
    cache.get(DEPLOYMENTS, &key).filter(|deployment| is_recreate(deployment)).map(|_| key)
}

#[cfg(test)]
mod tests;
