//! StatefulSet controller: pods with stable names, ordinals and claims, created and replaced in order.
//!
//! ```text
//!   adopt and release ─> revisions ─> pods in range: replace terminated, create missing, restore identity
//!                                        │ all available (or concurrently with podManagementPolicy Parallel)
//!                                        v
//!                                     delete pods out of range, last first ─> delete outdated pods, last first
//! ```

mod claims;
mod ordinal;
mod revisions;
mod status;

use std::convert::Infallible;

use api::resources::{CONTROLLER_REVISIONS, EVENTS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS};
use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value};
use controller::{Action, Cache, Controller, EventOnResult, EventType, Plan, Regarding, Write, kinds};

use crate::{adoption, int_or_percent};
use ordinal::{Slot, ordinal};
use revisions::Revisions;

pub struct StatefulSet;

/// A StatefulSet with the objects that its plan depends on.
#[derive(Debug)]
pub struct Observation<'a> {
    set: &'a Value,
    controlled: Vec<&'a Value>,
    orphans: Vec<&'a Value>,
    revisions: Vec<&'a Value>,
    orphan_revisions: Vec<&'a Value>,
    claims: Vec<&'a Value>,
}

impl Controller for StatefulSet {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "statefulset-controller";
    const READS: &'static [GroupResource] = &[STATEFUL_SETS, PODS, CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS];
    const WRITES: &'static [Write] = &[
        (PODS, ""),
        (CONTROLLER_REVISIONS, ""),
        (PERSISTENT_VOLUME_CLAIMS, ""),
        (STATEFUL_SETS, "status"),
        (EVENTS, ""),
    ];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            STATEFUL_SETS => keys.push(Key::of(object)),
            PERSISTENT_VOLUME_CLAIMS => keys.extend(claims::set_of(cache, object)),
            _ => adoption::concerned(object, "StatefulSet", cache.of(STATEFUL_SETS), keys),
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let set = cache.get(STATEFUL_SETS, key)?;
        let uid = Meta::of(set).uid();
        let is_member = |object: &&Value| ordinal(set, object).is_some();
        let has_claims = !claims::templates(set).is_empty();
        let claims = has_claims.then(|| cache.in_namespace(PERSISTENT_VOLUME_CLAIMS, &key.namespace));
        Some(Observation {
            set,
            controlled: cache.controlled_by(PODS, uid).collect(),
            orphans: cache.orphans(PODS, &key.namespace).filter(is_member).collect(),
            revisions: cache.controlled_by(CONTROLLER_REVISIONS, uid).collect(),
            orphan_revisions: cache.orphans(CONTROLLER_REVISIONS, &key.namespace).collect(),
            claims: claims.into_iter().flatten().filter(|one| claims::is_of(set, one)).collect(),
        })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let set = observed.set;
        let Some(selector) = adoption::selector(set) else { return selects_all(set) };
        let (revisions, orphans) = (observed.revisions.iter().copied(), observed.orphan_revisions.iter().copied());
        let history = adoption::claim(set, &selector, &kinds::CONTROLLER_REVISIONS, revisions, orphans);
        let (pods, orphans) = (observed.controlled.iter().copied(), observed.orphans.iter().copied());
        let pods = adoption::claim(set, &selector, &kinds::PODS, pods, orphans);
        let mut actions = history.actions;
        actions.extend(pods.actions);
        if !actions.is_empty() {
            return Plan { actions, ..Plan::default() };
        }
        let revisions = match Revisions::of(set, &history.owned) {
            Ok(revisions) => revisions,
            Err(_) if Meta::of(set).is_deleting() => return Plan::default(),
            Err(create) => return Plan { actions: create, ..Plan::default() },
        };
        let slots = Slots::of(set, &pods.owned);
        let mut plan = if Meta::of(set).is_deleting() { Plan::default() } else { slots.act(observed, &revisions, now) };
        if plan.actions.is_empty() {
            plan.actions = revisions.beyond_history(set, &pods.owned);
        }
        let status = status::of(set, &pods.owned, &revisions, now);
        plan.actions.extend(status.update);
        if let Some(time) = status.wake_at {
            plan.wake(time);
        }
        plan
    }
}

/// Returns `spec.replicas`, 1 by default.
pub fn replicas(set: &Value) -> i64 {
    set.int_at(&["spec", "replicas"]).unwrap_or(1)
}

fn min_ready_seconds(set: &Value) -> i64 {
    set.int_at(&["spec", "minReadySeconds"]).unwrap_or(0)
}

/// The pods of a StatefulSet by ordinal.
struct Slots<'a> {
    set: &'a Value,
    /// The ordinals in range, in order, with or without a pod.
    row: Vec<Slot<'a>>,
    /// Pods with ordinals out of range, the last first.
    beyond: Vec<&'a Value>,
}

impl<'a> Slots<'a> {
    fn of(set: &'a Value, pods: &[&'a Value]) -> Self {
        let start = ordinal::start(set);
        let mut row: Vec<Slot<'_>> =
            (0..replicas(set).max(0)).map(|at| Slot { ordinal: start + at, pod: None }).collect();
        let mut beyond = Vec::new();
        for pod in pods {
            let Some(ordinal) = ordinal(set, pod) else { continue };
            match usize::try_from(ordinal - start).ok().and_then(|at| row.get_mut(at)) {
                Some(slot) => slot.pod = Some(pod),
                None => beyond.push((ordinal, *pod)),
            }
        }
        beyond.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
        Self { set, row, beyond: beyond.into_iter().map(|(_, pod)| pod).collect() }
    }

    fn act(&self, observed: &Observation<'_>, revisions: &Revisions<'_>, now: Time) -> Plan {
        let in_order = self.set.str_at(&["spec", "podManagementPolicy"]) != Some("Parallel");
        let mut plan = Plan { actions: claims::retention(self.set, self, &observed.claims), ..Plan::default() };
        for slot in &self.row {
            let step = self.fill(*slot, observed, revisions, now);
            plan.actions.extend(step.actions);
            if let Some(reason) = step.waiting.filter(|_| in_order) {
                plan.waiting = Some(reason);
                return plan;
            }
        }
        if !plan.actions.is_empty() {
            return plan;
        }
        self.shrink(&mut plan, in_order, now);
        if plan.actions.is_empty() && plan.waiting.is_none() {
            self.update(&mut plan, revisions, now);
        }
        plan
    }

    /// Plans for one ordinal. With OrderedReady the caller stops here if the plan has a reason for waiting.
    fn fill(&self, slot: Slot<'a>, observed: &Observation<'_>, revisions: &Revisions<'_>, now: Time) -> Plan {
        let name = slot.name(self.set);
        let Some(have) = slot.pod else {
            let mut plan = Plan::waiting(format!("{name} is being created"));
            plan.actions = claims::missing(self.set, slot.ordinal, &observed.claims);
            if plan.actions.is_empty() {
                plan.push(self.create(slot, revisions));
            }
            return plan;
        };
        if Pod(have).is_terminal() {
            let mut plan = Plan::waiting(format!("{name} terminated and is being replaced"));
            if !Meta::of(have).is_deleting() {
                plan.actions = vec![self.replaces(have), self.delete(have)];
            }
            return plan;
        }
        let mut plan = Plan::default();
        if Pod(have).phase() == "Pending" {
            plan.actions = claims::missing(self.set, slot.ordinal, &observed.claims);
        }
        if let Some(reason) = self.not_available(have, now) {
            plan.waiting = Some(format!("{name} {reason}"));
            return plan;
        }
        plan.actions.extend(slot.identity(self.set));
        plan
    }

    /// Returns the reason why a pod is not available.
    fn not_available(&self, have: &Value, now: Time) -> Option<&'static str> {
        if Meta::of(have).is_deleting() {
            return Some("is being deleted");
        }
        if !is_running_and_ready(have) {
            return Some("is not ready");
        }
        let available = Pod(have).available_at(min_ready_seconds(self.set));
        (available.is_none_or(|at| at > now)).then_some("has not been ready for minReadySeconds")
    }

    /// Deletes pods with ordinals out of range.
    fn shrink(&self, plan: &mut Plan, in_order: bool, now: Time) {
        for pod in &self.beyond {
            if Meta::of(pod).is_deleting() {
                if in_order {
                    plan.waiting = Some(format!("{} is being deleted", Meta::of(pod).name()));
                    return;
                }
                continue;
            }
            if in_order
                && self.not_available(pod, now).is_some()
                && self.first_unhealthy().is_some_and(|first| !std::ptr::eq(first, *pod))
            {
                plan.waiting = Some("another pod is not healthy".to_owned());
                return;
            }
            plan.push(self.delete(pod));
            if in_order {
                return;
            }
        }
    }

    /// Returns the first unhealthy pod in upstream's order: ordinals in range, then those out of range.
    fn first_unhealthy(&self) -> Option<&'a Value> {
        let row = self.row.iter().filter_map(|slot| slot.pod);
        row.chain(self.beyond.iter().rev().copied()).find(|pod| !is_healthy(pod))
    }

    /// Deletes outdated pods, the last first, within maxUnavailable.
    fn update(&self, plan: &mut Plan, revisions: &Revisions<'_>, now: Time) {
        let strategy = self.set.at(&["spec", "updateStrategy"]);
        if strategy.and_then(|strategy| strategy.str_at(&["type"])) == Some("OnDelete") {
            return;
        }
        let rolling = |field| strategy.and_then(|strategy| strategy.at(&["rollingUpdate", field]));
        let partition = rolling("partition").and_then(Value::as_int).unwrap_or(0);
        let may_miss = match rolling("maxUnavailable") {
            None => 1,
            some => int_or_percent::down(some, replicas(self.set)).max(1),
        };
        let pods = || self.row.iter().filter_map(|slot| slot.pod);
        let missing = pods().filter(|pod| self.not_available(pod, now).is_some()).count();
        let mut budget = may_miss - i64::try_from(missing).unwrap_or(i64::MAX);
        let updated = Meta::of(revisions.update).name();
        let rest = self.row.iter().skip(usize::try_from(partition).unwrap_or(usize::MAX));
        let outdated = rest.rev().filter_map(|slot| slot.pod).filter(|pod| revision_of(pod) != updated);
        for pod in outdated.filter(|pod| !Meta::of(pod).is_deleting()) {
            let counted_already = self.not_available(pod, now).is_some();
            if !counted_already && budget <= 0 {
                plan.waiting = Some("maxUnavailable pods are unavailable".to_owned());
                return;
            }
            budget -= i64::from(!counted_already);
            plan.push(self.delete(pod));
        }
    }

    fn create(&self, slot: Slot<'_>, revisions: &Revisions<'_>) -> Action {
        let set = self.set;
        let revision = revisions.for_new(set, slot.ordinal);
        let object = slot.make(set, revision);
        let name = slot.name(set);
        let result_event = self.new_result_event("SuccessfulCreate", "create", &name, "FailedCreate");
        Action::Create { resource: kinds::PODS.clone(), object, result_event }
    }

    fn delete(&self, pod: &Value) -> Action {
        let mut action = Action::delete(&kinds::PODS, pod);
        if let Action::Delete { result_event, .. } = &mut action {
            *result_event = self.new_result_event("SuccessfulDelete", "delete", Meta::of(pod).name(), "FailedDelete");
        }
        action
    }

    fn new_result_event(
        &self,
        done_reason: &'static str,
        verb: &str,
        pod: &str,
        failed_reason: &'static str,
    ) -> Option<Box<EventOnResult>> {
        let set = Meta::of(self.set).name();
        let what = format!("{verb} Pod {pod} in StatefulSet {set}");
        Some(Box::new(EventOnResult {
            regarding: Regarding::object(self.set),
            done_reason,
            done_message: format!("{what} successful"),
            failed: Some((failed_reason, format!("{what} failed error").into())),
        }))
    }

    fn replaces(&self, finished_pod: &Value) -> Action {
        let (namespace, name) = (Meta::of(self.set).namespace(), Meta::of(self.set).name());
        let (kind, reason, outcome) = match Pod(finished_pod).phase() {
            "Failed" => (EventType::Warning, "RecreatingFailedPod", "failed"),
            _ => (EventType::Normal, "RecreatingTerminatedPod", "terminated"),
        };
        let message =
            format!("StatefulSet {namespace}/{name} is recreating {outcome} Pod {}", Meta::of(finished_pod).name());
        Action::Event { regarding: Regarding::object(self.set), kind, reason, message }
    }
}

fn is_running_and_ready(pod: &Value) -> bool {
    Pod(pod).phase() == "Running" && Pod(pod).is_ready()
}

fn is_healthy(pod: &Value) -> bool {
    is_running_and_ready(pod) && !Meta::of(pod).is_deleting()
}

/// Returns the name of the pod's revision.
fn revision_of(pod: &Value) -> &str {
    Meta::of(pod).label("controller-revision-hash").unwrap_or_default()
}

/// Reports a selector that matches all pods. Old API versions allowed it; the StatefulSet is not reconciled.
fn selects_all(set: &Value) -> Plan {
    let seen = set.int_at(&["status", "observedGeneration"]).unwrap_or(0);
    let mut plan = Plan::waiting("the selector is empty or invalid");
    if seen < Meta::of(set).generation() {
        let message = "This StatefulSet is selecting all pods. A non-empty selector is required.".to_owned();
        let regarding = Regarding::object(set);
        plan.push(Action::Event { regarding, kind: EventType::Warning, reason: "SelectingAll", message });
    }
    plan
}

#[cfg(test)]
mod tests;
