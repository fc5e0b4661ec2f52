//! The new and old ReplicaSets of a Deployment, with the changes planned for them.

use std::collections::BTreeMap;

use apimachinery::Value;
use apimachinery::meta::{Meta, MetaMut};
use controller::{Action, EventOnResult, Regarding, kinds};

use super::new_set::{self, REVISION, same_template};
use super::replicas;
use crate::int_or_percent;

/// Annotations with the desired and maximum replicas at the last scaling, the base of proportional scaling.
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// The ReplicaSets of one Deployment. All fields are as observed, except the size, which is the planned one.
pub(super) struct Sets<'a> {
    pub deployment: &'a Value,
    /// The ReplicaSet with the Deployment's current template.
    pub new: Option<Set<'a>>,
    /// The other ReplicaSets, oldest first.
    pub old: Vec<Set<'a>>,
}

#[derive(Clone, Debug)]
pub(super) struct Set<'a> {
    pub object: &'a Value,
    /// The planned `spec.replicas`.
    pub size: i64,
    /// Annotations to be set.
    annotations: BTreeMap<String, String>,
    min_ready_seconds: Option<i64>,
}

impl<'a> Sets<'a> {
    pub(super) fn new(deployment: &'a Value, owned: Vec<&'a Value>) -> Self {
        let mut all: Vec<Set<'a>> = owned.into_iter().map(Set::new).collect();
        all.sort_by_key(|set| (set.meta().creation_timestamp(), set.name().to_owned()));
        // Two ReplicaSets should never have the same template. If they do, the older one is used, deterministically.
        let at = all.iter().position(|set| same_template(set.object, deployment));
        let new = at.map(|at| all.remove(at));
        Self { deployment, new, old: all }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Set<'a>> {
        self.old.iter().chain(&self.new)
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Set<'a>> {
        self.old.iter_mut().chain(&mut self.new)
    }

    /// Returns the sum of the planned sizes.
    pub(super) fn total(&self) -> i64 {
        self.all().map(|set| set.size).sum()
    }

    /// Returns the maximum number of existing pods, including those of ReplicaSets that are still scaling down.
    pub(super) fn present(&self) -> i64 {
        let old: i64 = self.old.iter().map(|set| set.size.max(set.status("replicas"))).sum();
        old + self.new.as_ref().map_or(0, |set| set.size)
    }

    /// Plans revision, annotations and minReadySeconds of the new ReplicaSet.
    pub(super) fn annotate_new(&mut self) {
        let newest = self.old.iter().map(Set::revision).max().unwrap_or(0);
        let Some(set) = &mut self.new else { return };
        set.annotations.extend(new_set::annotations(self.deployment, Some(set.object), newest + 1));
        let desired = self.deployment.int_at(&["spec", "minReadySeconds"]).unwrap_or(0);
        let has = set.object.int_at(&["spec", "minReadySeconds"]).unwrap_or(0);
        set.min_ready_seconds = (desired != has).then_some(desired);
    }

    /// Deletes old, empty ReplicaSets beyond revisionHistoryLimit.
    pub(super) fn beyond_history(&self) -> Vec<Action> {
        let limit = self.deployment.int_at(&["spec", "revisionHistoryLimit"]);
        // Without a limit all ReplicaSets are kept; upstream uses the largest integer for it.
        let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { return Vec::new() };
        let mut old: Vec<&Set<'_>> = self.old.iter().filter(|set| !set.meta().is_deleting()).collect();
        old.sort_by_key(|set| set.revision());
        let surplus = old.len().saturating_sub(limit);
        let is_empty = |set: &&&Set<'_>| {
            set.status("replicas") == 0
                && set.size == 0
                && replicas(set.object) == 0
                && set.meta().generation() <= set.status("observedGeneration")
        };
        let to_delete = old.iter().take(surplus).filter(is_empty);
        to_delete.map(|set| Action::delete(&kinds::REPLICA_SETS, set.object)).collect()
    }

    /// Returns the writes that apply the plan.
    pub(super) fn into_updates(self) -> Vec<Action> {
        let (desired_replicas, max) =
            (replicas(self.deployment), replicas(self.deployment) + max_surge(self.deployment));
        self.all().filter_map(|set| set.update(self.deployment, desired_replicas, max)).collect()
    }
}

impl<'a> Set<'a> {
    fn new(object: &'a Value) -> Self {
        Self { object, size: replicas(object), annotations: BTreeMap::new(), min_ready_seconds: None }
    }

    pub(super) fn meta(&self) -> Meta<'a> {
        Meta::of(self.object)
    }

    pub(super) fn name(&self) -> &'a str {
        self.meta().name()
    }

    pub(super) fn status(&self, field: &str) -> i64 {
        self.object.int_at(&["status", field]).unwrap_or(0)
    }

    pub(super) fn revision(&self) -> i64 {
        self.number(REVISION).unwrap_or(0)
    }

    /// Returns an annotation parsed as a number.
    pub(super) fn number(&self, annotation: &str) -> Option<i64> {
        self.meta().annotation(annotation)?.parse().ok()
    }

    fn update(&self, deployment: &Value, desired_replicas: i64, max: i64) -> Option<Action> {
        let mut annotations = self.annotations.clone();
        let before = replicas(self.object);
        // The scaling annotations change with the size, or with spec.replicas while the ReplicaSet has pods.
        let outdated = self.size > 0 && self.number(DESIRED).is_some_and(|desired| desired != desired_replicas);
        if self.size != before || outdated {
            annotations.insert(DESIRED.to_owned(), desired_replicas.to_string());
            annotations.insert(MAX.to_owned(), max.to_string());
        }
        annotations.retain(|key, value| self.meta().annotation(key) != Some(value));
        if self.size == before && annotations.is_empty() && self.min_ready_seconds.is_none() {
            return None;
        }
        let mut object = self.object.clone();
        let mut meta = MetaMut::of(&mut object)?;
        annotations.iter().for_each(|(key, value)| meta.set_annotation(key, value));
        let spec = object.as_object_mut()?.get_or_insert_with("spec", Value::object).as_object_mut()?;
        spec.insert("replicas", self.size);
        if let Some(seconds) = self.min_ready_seconds {
            spec.insert("minReadySeconds", seconds);
        }
        let result_event = (self.size != before).then(|| Box::new(resized(deployment, self.name(), before, self.size)));
        Some(Action::Update { resource: kinds::REPLICA_SETS.clone(), object, result_event })
    }
}

/// Returns the ScalingReplicaSet event.
pub(super) fn resized(deployment: &Value, name: &str, from: i64, to: i64) -> EventOnResult {
    let way = if to > from { "up" } else { "down" };
    EventOnResult {
        regarding: Regarding::object(deployment),
        done_reason: "ScalingReplicaSet",
        done_message: format!("Scaled {way} replica set {name} from {from} to {to}"),
        failed: None,
    }
}

/// Returns the number of pods allowed above `spec.replicas`.
pub(super) fn max_surge(deployment: &Value) -> i64 {
    bounds(deployment).0
}

/// Returns the number of desired pods that may be unavailable.
pub(super) fn max_unavailable(deployment: &Value) -> i64 {
    let desired_replicas = replicas(deployment);
    if desired_replicas == 0 { 0 } else { bounds(deployment).1.min(desired_replicas) }
}

fn bounds(deployment: &Value) -> (i64, i64) {
    if deployment.str_at(&["spec", "strategy", "type"]) != Some("RollingUpdate") {
        return (0, 0);
    }
    let desired_replicas = replicas(deployment);
    let value = |field| deployment.at(&["spec", "strategy", "rollingUpdate", field]);
    let surge = int_or_percent::up(value("maxSurge"), desired_replicas);
    let unavailable = int_or_percent::down(value("maxUnavailable"), desired_replicas);
    // If both were zero, the rollout could not proceed.
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn bounds_are_numbers_or_percentages_and_never_both_zero() {
        let check = |replicas: i64, surge: Value, unavailable: Value, expect: (i64, i64)| {
            let deployment = value!({"spec": {"replicas": replicas, "strategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}});
            assert_eq!((max_surge(&deployment), max_unavailable(&deployment)), expect, "{deployment}");
        };
        check(3, "25%".into(), "25%".into(), (1, 0));
        check(10, "25%".into(), "25%".into(), (3, 2));
        check(3, 0.into(), "10%".into(), (0, 1));
        check(2, 5.into(), 5.into(), (5, 2));
        check(0, "25%".into(), "25%".into(), (0, 0));
        assert_eq!(max_surge(&value!({"spec": {"strategy": {"type": "Recreate"}}})), 0);
    }
}
