//! ReplicaSet controller: adopts, releases, creates and deletes pods to match `spec.replicas`.

mod status;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::marker::PhantomData;

use api::resources::{EVENTS, PODS, REPLICA_SETS};
use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Resource, Value};
use controller::{Action, Cache, Controller, EventOnResult, Plan, Regarding, Rejection, Write, kinds};

use crate::{adoption, names, pod};

/// Maximum pods created or deleted by one plan (upstream: BurstReplicas).
const BURST_MAX: usize = 500;

pub type ReplicaSet = Replicas<OfReplicaSets>;

/// Controller shared by ReplicaSets and ReplicationControllers.
pub struct Replicas<K>(PhantomData<K>);

/// A kind with `spec.replicas`.
pub trait Kind: 'static {
    const KIND: &'static str;
    /// The source component of events.
    const COMPONENT: &'static str;
    /// The resources read, the kind itself first.
    const READS: &'static [GroupResource];
    const WRITES: &'static [Write];
    const RESOURCE: &'static Resource;
    /// Whether the status has terminatingReplicas.
    const REPORTS_TERMINATING: bool;
}

pub struct OfReplicaSets;

impl Kind for OfReplicaSets {
    const KIND: &'static str = "ReplicaSet";
    const COMPONENT: &'static str = "replicaset-controller";
    const READS: &'static [GroupResource] = &[REPLICA_SETS, PODS];
    const WRITES: &'static [Write] = &[(PODS, ""), (REPLICA_SETS, "status"), (EVENTS, "")];
    const RESOURCE: &'static Resource = &kinds::REPLICA_SETS;
    const REPORTS_TERMINATING: bool = true;
}

/// A ReplicaSet with the pods that its plan depends on.
#[derive(Debug)]
pub struct Observation<'a> {
    set: &'a Value,
    controlled: Vec<&'a Value>,
    orphans: Vec<&'a Value>,
    /// Pods of all ReplicaSets of the same owner, collected only when scaling down. Their number on a node is a
    /// criterion of the deletion order.
    kin: Vec<&'a Value>,
    rejection: Option<&'a Rejection>,
}

impl<K: Kind> Controller for Replicas<K> {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = K::COMPONENT;
    const READS: &'static [GroupResource] = K::READS;
    const WRITES: &'static [Write] = K::WRITES;

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            PODS => adoption::concerned(object, K::KIND, cache.of(K::READS[0]), keys),
            _ => keys.push(Key::of(object)),
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let set = cache.get(K::READS[0], key)?;
        let meta = Meta::of(set);
        let controlled: Vec<&Value> = cache.controlled_by(PODS, meta.uid()).collect();
        let may_go = usize::try_from(replicas(set)).is_ok_and(|desired| controlled.len() > desired);
        let kin = meta.controller().filter(|_| may_go).into_iter().flat_map(|owner| {
            let siblings = cache.controlled_by(K::READS[0], owner.uid());
            siblings.flat_map(|set| cache.controlled_by(PODS, Meta::of(set).uid()))
        });
        Some(Observation {
            set,
            controlled,
            orphans: cache.orphans(PODS, &key.namespace).collect(),
            kin: kin.collect(),
            rejection: cache.rejection(),
        })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let set = observed.set;
        // Old API versions allowed a selector that matches nothing: such a ReplicaSet is not reconciled.
        let Some(selector) = adoption::selector(set) else { return Plan::default() };
        let orphans = observed.orphans.iter().copied();
        let claims = adoption::claim(set, &selector, &kinds::PODS, observed.controlled.iter().copied(), orphans);
        let mut plan = Plan::default();
        // Pods are counted only after all adoptions and releases are written.
        if claims.actions.is_empty() {
            plan.actions = scale(observed, &claims.owned, now);
        } else {
            plan.actions = claims.actions;
        }
        let status = status::of::<K>(set, &claims.owned, observed.rejection, now);
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

fn scale(observed: &Observation<'_>, owned: &[&Value], now: Time) -> Vec<Action> {
    let set = observed.set;
    if Meta::of(set).is_deleting() {
        return Vec::new();
    }
    let active: Vec<&Value> = owned.iter().copied().filter(|pod| Pod(pod).is_active()).collect();
    let desired = usize::try_from(replicas(set)).unwrap_or(0);
    if active.len() < desired {
        let missing = (desired - active.len()).min(BURST_MAX);
        return names::fresh(set, &prefix(set), owned, missing).iter().map(|name| create(set, name)).collect();
    }
    let surplus = (active.len() - desired).min(BURST_MAX);
    least_useful(&active, &observed.kin, surplus, now).into_iter().map(|pod| delete(set, pod)).collect()
}

/// Returns the `count` pods that are deleted first.
fn least_useful<'a>(active: &[&'a Value], kin: &[&'a Value], count: usize, now: Time) -> Vec<&'a Value> {
    if count == 0 {
        return Vec::new();
    }
    let mut on_node: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in kin.iter().filter(|pod| Pod(pod).is_active() && !Pod(pod).node_name().is_empty()) {
        *on_node.entry(Pod(pod).node_name()).or_default() += 1;
    }
    let rank = |pod: &Value| on_node.get(Pod(pod).node_name()).copied().unwrap_or(0);
    let mut ranked: Vec<(&Value, usize)> = active.iter().map(|pod| (*pod, rank(pod))).collect();
    ranked.sort_by_cached_key(|&(pod, rank)| pod::deletion_key(pod, rank, now));
    ranked.into_iter().take(count).map(|(pod, _)| pod).collect()
}

fn create(set: &Value, name: &str) -> Action {
    let template = set.at(&["spec", "template"]).unwrap_or(&Value::Null);
    let namespace = Meta::of(set).namespace();
    let object = pod::from_template(template, namespace, name, &prefix(set), adoption::reference(set));
    let result_event =
        new_result_event(set, "SuccessfulCreate", format!("Created pod: {name}"), "FailedCreate", "Error creating");
    Action::Create { resource: kinds::PODS.clone(), object, result_event }
}

fn delete(set: &Value, pod: &Value) -> Action {
    let mut action = Action::delete(&kinds::PODS, pod);
    if let Action::Delete { result_event, .. } = &mut action {
        let message = format!("Deleted pod: {}", Meta::of(pod).name());
        *result_event = new_result_event(set, "SuccessfulDelete", message, "FailedDelete", "Error deleting");
    }
    action
}

fn new_result_event(
    set: &Value,
    done_reason: &'static str,
    done_message: String,
    failed_reason: &'static str,
    failed_prefix: &'static str,
) -> Option<Box<EventOnResult>> {
    let regarding = Regarding::object(set);
    Some(Box::new(EventOnResult {
        regarding,
        done_reason,
        done_message,
        failed: Some((failed_reason, failed_prefix.into())),
    }))
}

fn prefix(set: &Value) -> String {
    format!("{}-", Meta::of(set).name())
}

#[cfg(test)]
mod tests;
