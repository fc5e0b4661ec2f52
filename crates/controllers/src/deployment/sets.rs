//! The ReplicaSets of a Deployment, new and old, with the changes that a plan makes to them.

use std::collections::BTreeMap;

use machinery::Value;
use machinery::meta::{Meta, MetaMut};
use reconcile::{Action, Regarding, Told, kinds};

use super::new_set::{self, REVISION, same_template};
use super::replicas;
use crate::share;

/// How many pods were wanted when a set was last resized, and how many there may be at most: what a later resize is in proportion to.
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// The sets of one Deployment. What is read of a set is what was observed, but for its size, which is what it will be.
pub struct Sets<'a> {
    pub deployment: &'a Value,
    /// The one with the template of the Deployment.
    pub new: Option<Set<'a>>,
    /// The others, oldest first.
    pub old: Vec<Set<'a>>,
}

/// One ReplicaSet.
#[derive(Clone, Debug)]
pub struct Set<'a> {
    pub object: &'a Value,
    /// How many pods it asks for after the plan.
    pub size: i64,
    /// Annotations that it gets.
    annotations: BTreeMap<String, String>,
    min_ready_seconds: Option<i64>,
}

impl<'a> Sets<'a> {
    pub fn new(deployment: &'a Value, owned: Vec<&'a Value>) -> Self {
        let mut all: Vec<Set<'a>> = owned.into_iter().map(Set::new).collect();
        all.sort_by_key(|set| (set.meta().creation_timestamp(), set.name().to_owned()));
        // Of two with the same template, which should not be, the older counts, whoever looks.
        let at = all.iter().position(|set| same_template(set.object, deployment));
        let new = at.map(|at| all.remove(at));
        Self { deployment, new, old: all }
    }

    pub fn all(&self) -> impl Iterator<Item = &Set<'a>> {
        self.old.iter().chain(&self.new)
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Set<'a>> {
        self.old.iter_mut().chain(&mut self.new)
    }

    /// How many pods all sets ask for.
    pub fn total(&self) -> i64 {
        self.all().map(|set| set.size).sum()
    }

    /// How many pods there are at most: of a set that shrinks, also those that are yet to go.
    pub fn present(&self) -> i64 {
        let old: i64 = self.old.iter().map(|set| set.size.max(set.status("replicas"))).sum();
        old + self.new.as_ref().map_or(0, |set| set.size)
    }

    /// Gives the new set the revision, the annotations and the patience that it should have.
    pub fn annotate_new(&mut self) {
        let newest = self.old.iter().map(Set::revision).max().unwrap_or(0);
        let Some(set) = &mut self.new else { return };
        set.annotations.extend(new_set::annotations(self.deployment, Some(set.object), newest + 1));
        let wanted = self.deployment.at(&["spec", "minReadySeconds"]).and_then(Value::as_int).unwrap_or(0);
        let has = set.object.at(&["spec", "minReadySeconds"]).and_then(Value::as_int).unwrap_or(0);
        set.min_ready_seconds = (wanted != has).then_some(wanted);
    }

    /// Old sets beyond what history is to be kept, with nothing left in them.
    pub fn beyond_history(&self) -> Vec<Action> {
        let limit = self.deployment.at(&["spec", "revisionHistoryLimit"]).and_then(Value::as_int);
        // Without a limit nothing is ever dropped: upstream has the largest number for it.
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
        let gone = old.iter().take(surplus).filter(is_empty);
        gone.map(|set| Action::delete(&kinds::REPLICA_SETS, set.object)).collect()
    }

    /// The writes that make the sets what the plan says.
    pub fn into_updates(self) -> Vec<Action> {
        let (wanted, max) = (replicas(self.deployment), replicas(self.deployment) + max_surge(self.deployment));
        self.all().filter_map(|set| set.update(self.deployment, wanted, max)).collect()
    }
}

impl<'a> Set<'a> {
    fn new(object: &'a Value) -> Self {
        Self { object, size: replicas(object), annotations: BTreeMap::new(), min_ready_seconds: None }
    }

    pub fn meta(&self) -> Meta<'a> {
        Meta::of(self.object)
    }

    pub fn name(&self) -> &'a str {
        self.meta().name()
    }

    pub fn status(&self, field: &str) -> i64 {
        self.object.at(&["status", field]).and_then(Value::as_int).unwrap_or(0)
    }

    pub fn revision(&self) -> i64 {
        self.number(REVISION).unwrap_or(0)
    }

    /// An annotation that is a number.
    pub fn number(&self, annotation: &str) -> Option<i64> {
        self.meta().annotation(annotation)?.parse().ok()
    }

    fn update(&self, deployment: &Value, wanted: i64, max: i64) -> Option<Action> {
        let mut annotations = self.annotations.clone();
        let before = replicas(self.object);
        // What a set is in proportion to changes with its size, or with what is wanted while it has pods.
        let outdated = self.size > 0 && self.number(DESIRED).is_some_and(|desired| desired != wanted);
        if self.size != before || outdated {
            annotations.insert(DESIRED.to_owned(), wanted.to_string());
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
        let told = (self.size != before).then(|| Box::new(resized(deployment, self.name(), before, self.size)));
        Some(Action::Update { resource: kinds::REPLICA_SETS.clone(), object, told })
    }
}

/// What people are told of a set that grows or shrinks.
pub fn resized(deployment: &Value, name: &str, from: i64, to: i64) -> Told {
    let way = if to > from { "up" } else { "down" };
    Told {
        regarding: Regarding::object(deployment),
        done_reason: "ScalingReplicaSet",
        done_message: format!("Scaled {way} replica set {name} from {from} to {to}"),
        failed: None,
    }
}

/// How many pods there may be beyond those wanted.
pub fn max_surge(deployment: &Value) -> i64 {
    bounds(deployment).0
}

/// How many of the wanted pods may be missing.
pub fn max_unavailable(deployment: &Value) -> i64 {
    let wanted = replicas(deployment);
    if wanted == 0 { 0 } else { bounds(deployment).1.min(wanted) }
}

fn bounds(deployment: &Value) -> (i64, i64) {
    if deployment.str_at(&["spec", "strategy", "type"]) != Some("RollingUpdate") {
        return (0, 0);
    }
    let wanted = replicas(deployment);
    let value = |field| deployment.at(&["spec", "strategy", "rollingUpdate", field]);
    let surge = share::up(value("maxSurge"), wanted);
    let unavailable = share::down(value("maxUnavailable"), wanted);
    // With neither allowed nothing could ever move.
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

#[cfg(test)]
mod tests {
    use machinery::value;

    use super::*;

    #[test]
    fn bounds_are_numbers_or_shares_and_never_both_nothing() {
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
