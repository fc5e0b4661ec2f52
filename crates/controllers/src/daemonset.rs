//! DaemonSet controller: runs one pod on each eligible node and rolls out template changes.

mod backoff;
mod history;
mod make;
mod rollout;
mod status;

use std::collections::BTreeMap;
use std::convert::Infallible;

use api::resources::{CONTROLLER_REVISIONS, DAEMON_SETS, EVENTS, NODES, PODS};
use api::view::{Node, Pod, PodSpec};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value};
use controller::{Action, Cache, Controller, EventType, Plan, Regarding, Write, kinds};

use crate::adoption;
use backoff::Backoffs;
use history::History;

/// Maximum pods created or deleted by one plan (upstream: BurstReplicas).
const BURST_MAX: usize = 250;

pub struct DaemonSet;

/// A DaemonSet with the nodes, pods and revisions that its plan depends on.
#[derive(Debug)]
pub struct Observation<'a> {
    set: &'a Value,
    nodes: Vec<&'a Value>,
    controlled: Vec<&'a Value>,
    orphans: Vec<&'a Value>,
    revisions: Vec<&'a Value>,
    orphan_revisions: Vec<&'a Value>,
    memory: Option<&'a Value>,
}

impl Controller for DaemonSet {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "daemonset-controller";
    const READS: &'static [GroupResource] = &[DAEMON_SETS, PODS, NODES, CONTROLLER_REVISIONS];
    const WRITES: &'static [Write] = &[(PODS, ""), (CONTROLLER_REVISIONS, ""), (DAEMON_SETS, "status"), (EVENTS, "")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            DAEMON_SETS => keys.push(Key::of(object)),
            NODES => keys.extend(sets_for_node(cache, object)),
            _ => adoption::concerned(object, "DaemonSet", cache.of(DAEMON_SETS), keys),
        }
    }

    /// Ignores node status updates: eligibility depends on a node's labels and spec only.
    fn is_relevant_change(kind: GroupResource, old: &Value, new: &Value) -> bool {
        let labels = |node: &Value| Meta::of(node).value("labels").cloned();
        kind != NODES || labels(old) != labels(new) || old.get("spec") != new.get("spec")
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let set = cache.get(DAEMON_SETS, key)?;
        let uid = Meta::of(set).uid();
        Some(Observation {
            set,
            nodes: cache.of(NODES).iter().map(|entry| &entry.value).collect(),
            controlled: cache.controlled_by(PODS, uid).collect(),
            orphans: cache.orphans(PODS, &key.namespace).collect(),
            revisions: cache.controlled_by(CONTROLLER_REVISIONS, uid).collect(),
            orphan_revisions: cache.orphans(CONTROLLER_REVISIONS, &key.namespace).collect(),
            memory: cache.memory(),
        })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let set = observed.set;
        let Some(selector) = adoption::selector(set) else { return selects_all(set) };
        if Meta::of(set).is_deleting() {
            return Plan::default();
        }
        let (revisions, orphans) = (observed.revisions.iter().copied(), observed.orphan_revisions.iter().copied());
        let revisions = adoption::claim(set, &selector, &kinds::CONTROLLER_REVISIONS, revisions, orphans);
        let (pods, orphans) = (observed.controlled.iter().copied(), observed.orphans.iter().copied());
        let pods = adoption::claim(set, &selector, &kinds::PODS, pods, orphans);
        let mut actions = revisions.actions;
        actions.extend(pods.actions);
        let remember = observed.memory.cloned();
        if !actions.is_empty() {
            return Plan { actions, remember, ..Plan::default() };
        }
        let history = match History::of(set, &revisions.owned, &pods.owned) {
            Ok(history) => history,
            Err(actions) => return Plan { actions, remember, ..Plan::default() },
        };
        let fleet = Fleet::of(set, &observed.nodes, &pods.owned, &history.hash);
        let mut plan = fleet.manage(Backoffs::recall(observed.memory, &history.hash, now), now);
        if plan.actions.is_empty() {
            plan.actions = rollout::roll(&fleet, now);
        }
        plan.actions.truncate(BURST_MAX);
        if plan.actions.is_empty() {
            plan.actions = history.beyond_limit(set, &pods.owned);
        }
        let status = status::of(&fleet, now);
        plan.actions.extend(status.update);
        if let Some(time) = status.wake_at {
            plan.wake(time);
        }
        plan
    }
}

/// The nodes, and the DaemonSet's pods on them.
struct Fleet<'a> {
    set: &'a Value,
    hash: &'a str,
    nodes: Vec<NodeState<'a>>,
    /// Pods that are meant for a node that does not exist.
    lost: Vec<&'a Value>,
    pods: Vec<&'a Value>,
}

/// A node and the DaemonSet's pods on it.
struct NodeState<'a> {
    name: &'a str,
    /// Whether the node should run a pod.
    should_run: bool,
    /// Whether an existing pod may keep running (no untolerated NoExecute taint).
    may_stay: bool,
    /// The pods of the node, the oldest bound pod first.
    pods: Vec<&'a Value>,
}

impl<'a> Fleet<'a> {
    fn of(set: &'a Value, nodes: &[&'a Value], pods: &[&'a Value], hash: &'a str) -> Self {
        let mut by_node: BTreeMap<&str, Vec<&'a Value>> = BTreeMap::new();
        // A terminated pod that is being deleted counts as deleted.
        for pod in pods.iter().filter(|pod| !(Pod(pod).is_terminal() && Meta::of(pod).is_deleting())) {
            by_node.entry(make::target(pod)).or_default().push(pod);
        }
        let spec = make::spec(set);
        let nodes: Vec<NodeState<'a>> = nodes
            .iter()
            .map(|node| {
                let name = Meta::of(node).name();
                let (should_run, may_stay) = belongs(set, &spec, node);
                let mut pods = by_node.remove(name).unwrap_or_default();
                pods.sort_by_cached_key(|pod| {
                    let meta = Meta::of(pod);
                    (Pod(pod).node_name().is_empty(), meta.creation_timestamp(), meta.name().to_owned())
                });
                NodeState { name, should_run, may_stay, pods }
            })
            .collect();
        let lost = by_node.into_values().flatten().filter(|pod| Pod(pod).node_name().is_empty()).collect();
        Self { set, hash, nodes, lost, pods: pods.to_vec() }
    }

    /// Creates missing pods and deletes surplus ones.
    fn manage(&self, mut backoffs: Backoffs<'_>, now: Time) -> Plan {
        let mut plan = Plan::default();
        let mut missing = Vec::new();
        let mut surplus: Vec<&Value> = self.lost.iter().copied().filter(|pod| !Meta::of(pod).is_deleting()).collect();
        for node_state in &self.nodes {
            if node_state.may_stay {
                surplus.extend(self.at(node_state, &mut backoffs, &mut missing, &mut plan, now));
            } else {
                surplus.extend(node_state.pods.iter().copied().filter(|pod| !Meta::of(pod).is_deleting()));
            }
        }
        plan.actions.extend(surplus.into_iter().map(|pod| make::delete(self.set, pod)));
        plan.actions.extend(make::create(self.set, self.hash, &missing, &self.pods));
        plan.remember = backoffs.remember();
        plan
    }

    /// Returns the surplus pods of a node where pods may run, and adds the node to `missing` if it needs a pod.
    fn at(
        &self,
        node_state: &NodeState<'a>,
        backoffs: &mut Backoffs<'_>,
        missing: &mut Vec<&'a str>,
        plan: &mut Plan,
        now: Time,
    ) -> Vec<&'a Value> {
        if node_state.pods.is_empty() {
            if node_state.should_run {
                missing.push(node_state.name);
            }
            return Vec::new();
        }
        let (mut surplus, mut running) = (Vec::new(), Vec::new());
        let backing_off = backoffs.until(node_state.name, now);
        let (mut waits, mut replaces) = (false, false);
        for pod in node_state.pods.iter().copied().filter(|pod| !Meta::of(pod).is_deleting()) {
            match Pod(pod).phase() {
                "Failed" => match backing_off {
                    Some(until) => {
                        plan.wake(until);
                        waits = true;
                    }
                    None => {
                        replaces = true;
                        plan.push(self.finished_pod_event(pod, node_state.name));
                        surplus.push(pod);
                    }
                },
                "Succeeded" => {
                    plan.push(self.finished_pod_event(pod, node_state.name));
                    surplus.push(pod);
                }
                _ => running.push(pod),
            }
        }
        if replaces {
            backoffs.replace(node_state.name, now);
        }
        if !rollout::surges(self.set) {
            surplus.extend(running.into_iter().skip(1));
            return surplus;
        }
        // Upstream creates a pod next to a failed one in back-off, and repeats that while pods fail.
        if running.is_empty() && node_state.should_run && !waits {
            missing.push(node_state.name);
        }
        surplus.extend(self.beyond_two(&running, now));
        surplus
    }

    /// Returns the surplus pods under maxSurge. An old and a new pod coexist until the new one is available or the old
    /// one is not ready.
    fn beyond_two(&self, running: &[&'a Value], now: Time) -> Vec<&'a Value> {
        let (new, old): (Vec<&Value>, Vec<&Value>) = running.iter().copied().partition(|pod| self.has_hash(pod));
        let mut surplus: Vec<&Value> = new.iter().skip(1).chain(old.iter().skip(1)).copied().collect();
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!Pod(old).is_ready() || self.is_available(new, now))
        {
            surplus.push(old);
        }
        surplus
    }

    fn has_hash(&self, pod: &Value) -> bool {
        Meta::of(pod).label(make::HASH) == Some(self.hash)
    }

    /// Whether a pod has the current template.
    fn is_updated(&self, pod: &Value) -> bool {
        let generation = make::template_generation(self.set);
        let same = generation.is_some() && Meta::of(pod).label(make::GENERATION) == generation;
        same || self.has_hash(pod)
    }

    fn is_available(&self, pod: &Value, now: Time) -> bool {
        self.available_at(pod).is_some_and(|at| at <= now)
    }

    fn available_at(&self, pod: &Value) -> Option<Time> {
        let seconds = self.set.int_at(&["spec", "minReadySeconds"]).unwrap_or(0);
        Pod(pod).available_at(seconds)
    }

    fn finished_pod_event(&self, pod: &Value, node: &str) -> Action {
        let meta = Meta::of(pod);
        let (kind, reason, how, what) = match Pod(pod).phase() {
            "Failed" => (EventType::Warning, "FailedDaemonPod", "failed", "kill"),
            _ => (EventType::Normal, "SucceededDaemonPod", "succeeded", "delete"),
        };
        let message = format!(
            "Found {how} daemon pod {}/{} on node {node}, will try to {what} it",
            meta.namespace(),
            meta.name()
        );
        Action::Event { regarding: Regarding::object(self.set), kind, reason, message }
    }
}

/// Returns whether a pod should run on the node, and whether an existing pod may keep running.
fn belongs(set: &Value, spec: &Value, node: &Value) -> (bool, bool) {
    let by_name = set.str_at(&["spec", "template", "spec", "nodeName"]).filter(|name| !name.is_empty());
    let (spec, node) = (PodSpec(spec), Node(node));
    if by_name.is_some_and(|name| name != node.name()) || !spec.selects(node) {
        return (false, false);
    }
    (spec.tolerates_node(node, &["NoSchedule", "NoExecute"]), spec.tolerates_node(node, &["NoExecute"]))
}

/// Returns the DaemonSets whose pods may run on the node or already do.
fn sets_for_node(cache: &Cache, node: &Value) -> Vec<Key> {
    let name = Meta::of(node).name();
    let mut keys: Vec<Key> = cache
        .of(DAEMON_SETS)
        .iter()
        .filter(|entry| belongs(&entry.value, &make::spec(&entry.value), node).1)
        .map(|entry| entry.key.clone())
        .collect();
    for pod in cache.on_node(PODS, name) {
        let meta = Meta::of(pod);
        let owner = meta.controller().filter(|owner| owner.kind() == "DaemonSet");
        keys.extend(owner.map(|owner| Key::new(meta.namespace(), owner.name())));
    }
    keys
}

/// Reports a selector that matches all pods. Old API versions allowed it; the DaemonSet is not reconciled.
fn selects_all(set: &Value) -> Plan {
    let mut plan = Plan::waiting("the selector is empty or invalid");
    let seen = set.int_at(&["status", "observedGeneration"]).unwrap_or(0);
    if seen < Meta::of(set).generation() {
        let message = "This daemon set is selecting all pods. A non-empty selector is required.".to_owned();
        let regarding = Regarding::object(set);
        plan.push(Action::Event { regarding, kind: EventType::Warning, reason: "SelectingAll", message });
    }
    plan
}

#[cfg(test)]
mod tests;
