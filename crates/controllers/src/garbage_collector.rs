//! Garbage collector: deletes objects without owners and applies the propagation policy of deleted owners.
//!
//! A key is the UID of an object, existing or deleted:
//!
//! ```text
//!   deleted ─────────────────────────> each dependent: delete it, or remove the reference if it has other owners
//!   deleting, policy Orphan ─────────> remove the reference from each dependent; then remove the finalizer
//!   deleting, policy Foreground ─────> delete each dependent; when no blocking one is left, remove the finalizer
//!   otherwise ───────────────────────> process the object itself as a dependent
//! ```

use std::collections::BTreeSet;

use apimachinery::collection::Entry;
use apimachinery::meta::{Meta, Scope};
use apimachinery::time::Time;
use apimachinery::{Key, Str, Value, value};
use controller::object_graph::{
    Answers, FOREGROUND, GlobalController, Item, ORPHAN, ObjectGraph, Owner, Query, QueryResponse, Step,
};
use controller::{Action, Patch, Plan, Preconditions, Propagation};

pub struct GarbageCollector;

/// The state of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerState {
    /// The owner exists and is not in foreground deletion.
    Solid,
    /// The API server reported that the owner does not exist or has another UID.
    Dangling,
    /// The owner is in foreground deletion and waits for its dependents.
    Waiting,
    /// The query for the owner has no response yet, or failed.
    Unknown,
}

impl GlobalController for GarbageCollector {
    const NAME: &'static str = "garbage-collector-controller";

    fn affected_keys(_: &Key, old: Option<&Item>, new: Option<&Item>, keys: &mut Vec<Key>) {
        let mut push = |uid: &Str| keys.push(Key::cluster(uid.clone()));
        if let Some(new) = new {
            let changed = old.filter(|old| old.uid == new.uid).is_none_or(|old| {
                old.owners != new.owners || old.finalizers != new.finalizers || old.deleting != new.deleting
            });
            if changed && (!new.owners.is_empty() || new.deleting) {
                push(&new.uid);
            }
        }
        let Some(old) = old else { return };
        let same = new.filter(|new| new.uid == old.uid);
        if same.is_none() {
            push(&old.uid);
        }
        // An owner in foreground deletion may have been waiting for this dependent.
        for owner in &old.owners {
            if same.and_then(|new| new.owner(&owner.uid)).is_none_or(|now| now.block != owner.block) {
                push(&owner.uid);
            }
        }
    }

    fn decide(everything: &ObjectGraph, key: &Key, responses: &Answers, _: Time) -> Step {
        let mut decision = Decision { everything, responses, queries: BTreeSet::new(), plan: Plan::default() };
        match everything.item(&key.name) {
            None => everything.dependents(&key.name).for_each(|dependent| decision.see_to(dependent)),
            Some(item) if item.value.deleting && item.value.has_finalizer(ORPHAN) => decision.orphan(item),
            Some(item) if item.value.waits_for_dependents() => decision.wait_for_dependents(item),
            Some(item) => decision.see_to(item),
        }
        if decision.queries.is_empty() {
            Step::Execute(decision.plan)
        } else {
            Step::Query(decision.queries.into_iter().collect())
        }
    }
}

struct Decision<'a> {
    everything: &'a ObjectGraph,
    responses: &'a Answers,
    queries: BTreeSet<Query>,
    plan: Plan,
}

impl Decision<'_> {
    /// Removes the owner reference from all dependents, then the orphan finalizer.
    fn orphan(&mut self, item: &Entry<Item>) {
        let uid = item.value.uid.clone();
        for dependent in self.everything.dependents(&uid) {
            self.plan.push(without_owners(dependent, &BTreeSet::from([uid.clone()])));
        }
        if self.plan.actions.is_empty() {
            self.release(item, ORPHAN);
        }
    }

    /// Deletes the dependents. Removes the foreground finalizer when no blocking dependent is left.
    fn wait_for_dependents(&mut self, item: &Entry<Item>) {
        let everything = self.everything;
        let uid = &item.value.uid;
        let blocks = |dependent: &Entry<Item>| {
            dependent.value.owners.iter().any(|owner| owner.uid == *uid && owner.block == Some(true))
        };
        if everything.dependents(uid).any(blocks) {
            everything.dependents(uid).for_each(|dependent| self.see_to(dependent));
            if self.plan.actions.is_empty() {
                self.plan.waiting = Some("dependents are being deleted".to_owned());
            }
        } else {
            self.release(item, FOREGROUND);
        }
    }

    /// Removes a finalizer, unless dependents of kinds that are not cached may exist.
    fn release(&mut self, item: &Entry<Item>, finalizer: &str) {
        if !self.everything.whole {
            self.plan.waiting = Some("not all kinds are cached".to_owned());
            return;
        }
        let left: Vec<Value> =
            item.value.finalizers.iter().filter(|have| *have != finalizer).cloned().map(Value::from).collect();
        self.plan.push(patch(item, value!({"metadata": {"finalizers": left}})));
    }

    /// Deletes an object without remaining owners, or removes its dangling owner references.
    fn see_to(&mut self, entry: &Entry<Item>) {
        let item = &entry.value;
        if item.deleting || item.owners.is_empty() {
            return;
        }
        let standings: Vec<(&Owner, OwnerState)> =
            item.owners.iter().map(|owner| (owner, self.standing(entry, owner))).collect();
        let has = |expected| standings.iter().any(|(_, standing)| *standing == expected);
        if has(OwnerState::Unknown) {
            return;
        }
        if has(OwnerState::Solid) {
            let useless = standings.iter().filter(|(_, standing)| *standing != OwnerState::Solid);
            let useless: BTreeSet<Str> = useless.map(|(owner, _)| owner.uid.clone()).collect();
            if !useless.is_empty() {
                self.plan.push(without_owners(entry, &useless));
            }
        } else if has(OwnerState::Waiting) && self.everything.dependents(&item.uid).next().is_some() {
            // Break a cycle of objects that block each other.
            if self.everything.dependents(&item.uid).any(|dependent| dependent.value.waits_for_dependents())
                && item.owners.iter().any(|owner| owner.block == Some(true))
            {
                self.plan.push(unblocked(entry));
            } else {
                self.plan.push(delete(entry, Propagation::Foreground));
            }
        } else if item.has_finalizer(ORPHAN) {
            self.plan.push(delete(entry, Propagation::Orphan));
        } else if item.has_finalizer(FOREGROUND) {
            self.plan.push(delete(entry, Propagation::Foreground));
        } else {
            self.plan.push(delete(entry, Propagation::Background));
        }
    }

    /// Returns the state of an owner from the cache. If the owner is not cached, the API server is queried.
    fn standing(&mut self, entry: &Entry<Item>, owner: &Owner) -> OwnerState {
        let found = self.everything.item(&owner.uid).filter(|found| is_named_by(found, owner, &entry.key.namespace));
        if let Some(found) = found {
            return if found.value.waits_for_dependents() { OwnerState::Waiting } else { OwnerState::Solid };
        }
        let resource = self.everything.discovery.resource(&owner.api_version, &owner.kind);
        let namespace = match resource.map(|resource| resource.scope) {
            Some(Scope::Cluster) => Str::default(),
            // A cluster-scoped object cannot have a namespaced owner: the reference has no namespace.
            Some(Scope::Namespaced) if entry.key.namespace.is_empty() => return OwnerState::Unknown,
            Some(Scope::Namespaced) | None => entry.key.namespace.clone(),
        };
        let question = Query::Object {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            key: Key::new(namespace, owner.name.clone()),
        };
        match self.responses.get(&question) {
            None => {
                self.queries.insert(question);
                OwnerState::Unknown
            }
            Some(QueryResponse::Absent) => OwnerState::Dangling,
            Some(QueryResponse::Object(object)) => {
                let meta = Meta::of(object);
                if meta.uid() != owner.uid {
                    OwnerState::Dangling
                } else if meta.is_deleting() && meta.finalizers().any(|finalizer| finalizer == FOREGROUND) {
                    OwnerState::Waiting
                } else {
                    OwnerState::Solid
                }
            }
            Some(QueryResponse::Items(_) | QueryResponse::Kinds(_) | QueryResponse::Failed(_)) => OwnerState::Unknown,
        }
    }
}

/// Whether the reference matches the object in kind, group, name and namespace. The UID alone is not sufficient,
/// because any client can write it.
fn is_named_by(found: &Entry<Item>, owner: &Owner, namespace: &str) -> bool {
    let resource = &found.value.resource;
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let here = resource.scope == Scope::Cluster || found.key.namespace == namespace;
    resource.kind == owner.kind && resource.group == group && found.key.name == owner.name && here
}

fn without_owners(entry: &Entry<Item>, uids: &BTreeSet<Str>) -> Action {
    let left: Vec<Value> =
        entry.value.owners.iter().filter(|owner| !uids.contains(&owner.uid)).map(Owner::to_value).collect();
    patch(entry, value!({"metadata": {"ownerReferences": left}}))
}

fn unblocked(entry: &Entry<Item>) -> Action {
    let free = |owner: &Owner| Owner { block: owner.block.map(|_| false), ..owner.clone() }.to_value();
    let owners: Vec<Value> = entry.value.owners.iter().map(free).collect();
    patch(entry, value!({"metadata": {"ownerReferences": owners}}))
}

/// Returns a merge patch, which all kinds support, with the observed UID and resourceVersion as preconditions. Lists
/// are replaced completely.
fn patch(entry: &Entry<Item>, change: Value) -> Action {
    Action::Patch {
        resource: (*entry.value.resource).clone(),
        key: entry.key.clone(),
        subresource: "",
        only_if: unchanged(entry),
        patch: Patch::Merge(change),
    }
}

fn delete(entry: &Entry<Item>, propagation: Propagation) -> Action {
    Action::Delete {
        resource: (*entry.value.resource).clone(),
        key: entry.key.clone(),
        only_if: unchanged(entry),
        propagation: Some(propagation),
        grace_seconds: None,
        result_event: None,
    }
}

fn unchanged(entry: &Entry<Item>) -> Preconditions {
    let item = &entry.value;
    Preconditions { uid: Some(item.uid.clone()), resource_version: Some(item.resource_version.clone()) }
}

#[cfg(test)]
mod tests;
