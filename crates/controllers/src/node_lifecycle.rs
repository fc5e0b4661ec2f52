//! Node lifecycle controller: marks unresponsive nodes as Unknown and taints unhealthy nodes.

mod taints;
mod zones;

use std::convert::Infallible;

use api::resources::{self, EVENTS, NODES, PODS};
use api::view::{Pod, condition_status};
use apimachinery::collection::Entry;
use apimachinery::meta::Meta;
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, EventType, Patch, Plan, Preconditions, Regarding, Write, kinds};

use crate::condition;

pub use zones::Rates;

const LEASES: &str = "kube-node-lease";
/// The conditions that the kubelet reports.
const KUBELET_CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Grace periods and eviction rates.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Grace period after the last heartbeat: `--node-monitor-grace-period`.
    pub grace: Duration,
    /// Grace period of a node that never sent a heartbeat: `--node-startup-grace-period`.
    pub startup_grace: Duration,
    /// Eviction rates of the nodes of a zone.
    pub rates: Rates,
}

impl Default for Config {
    fn default() -> Self {
        Self { grace: Duration::from_seconds(50), startup_grace: Duration::from_seconds(60), rates: Rates::default() }
    }
}

pub struct NodeLifecycle;

/// A node, its Lease, the pods on it, and all nodes.
pub struct Observation<'a> {
    node: &'a Entry<Value>,
    lease: Option<&'a Entry<Value>>,
    pods: Vec<&'a Value>,
    /// Empty if the node is ready: only the taints of other nodes depend on their zones.
    all: Vec<&'a Value>,
    config: Config,
}

impl Controller for NodeLifecycle {
    type Observed<'a> = Observation<'a>;
    type Config = Config;
    type Effect = Infallible;
    const NAME: &'static str = "node-controller";
    const READS: &'static [GroupResource] = &[NODES, resources::LEASES, PODS];
    const WRITES: &'static [Write] = &[(NODES, ""), (NODES, "status"), (PODS, "status"), (EVENTS, "")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        let meta = Meta::of(object);
        match kind {
            NODES => keys.push(Key::of(object)),
            // Only ready pods matter here: they must become not ready with their node.
            PODS if Pod(object).is_ready() => {
                let key = Key::cluster(Pod(object).node_name());
                keys.extend(cache.get(NODES, &key).filter(|node| ready(node) != "True").map(|_| key));
            }
            resources::LEASES if meta.namespace() == LEASES => keys.push(Key::cluster(meta.name())),
            _ => {}
        }
    }

    fn observe<'a>(cache: &'a Cache, config: &'a Config, key: &Key) -> Option<Observation<'a>> {
        let node = cache.of(NODES).entry(key)?;
        let is_ready = ready(&node.value) == "True";
        Some(Observation {
            node,
            lease: cache.of(resources::LEASES).entry(&Key::new(LEASES, key.name.clone())).map(|lease| &**lease),
            pods: cache.on_node(PODS, &key.name).collect(),
            all: cache.of(NODES).iter().filter(|_| !is_ready).map(|entry| &entry.value).collect(),
            config: *config,
        })
    }

    // DEVIATION: no RegisteredNode event is recorded, because controllers do not remember the nodes they have seen; upstream
    // records one per node in each process.
    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let node = &observed.node.value;
        let mut plan = Plan::default();
        if Meta::of(node).is_deleting() {
            return plan;
        }
        let ready = ready(node);
        let silent_at = silent_at(observed);
        if ready != "Unknown" || condition::find(node, "Ready").is_none() {
            if silent_at <= now {
                plan.push(unknown(node, now));
                plan.push(Action::Event {
                    regarding: Regarding::object(node),
                    kind: EventType::Normal,
                    reason: "NodeNotReady",
                    message: format!("Node {} status is now: NodeNotReady", Meta::of(node).name()),
                });
                return plan;
            }
            plan.wake(silent_at);
        }
        if ready != "True" {
            plan.actions.extend(observed.pods.iter().filter(|pod| Pod(pod).is_ready()).map(|pod| not_ready(pod, now)));
        }
        let zone = zones::evaluate(node, &observed.all, &observed.config.rates, now);
        if let Some(time) = zone.wake_at {
            plan.wake(time);
        }
        plan.actions.extend(taints::update(node, ready, zone.may_empty, now));
        plan
    }
}

/// Returns the status of the Ready condition; `Unknown` if the node never reported it.
fn ready(node: &Value) -> &str {
    condition_status(node, "Ready").unwrap_or("Unknown")
}

/// Returns the time at which the node becomes Unknown without a further heartbeat.
///
/// A renewed Lease counts from the time at which this process observed it, because the clock of the node may differ.
// DEVIATION: a heartbeat in the status of a node counts from the time in it, but not from a later time than that of the
// node's last change; upstream counts it from the time at which it observed the heartbeat.
fn silent_at(observed: &Observation<'_>) -> Time {
    let node = &observed.node.value;
    let ready_condition = condition::find(node, "Ready");
    let is_renewed = |lease: &&Entry<Value>| lease.value.str_at(&["spec", "renewTime"]).is_some();
    let heartbeat = ready_condition
        .and_then(|it| Time::parse(it.str_at(&["lastHeartbeatTime"])?).ok())
        .map(|heartbeat| heartbeat.min(observed.node.observed_at));
    let last = observed.lease.filter(is_renewed).map(|lease| lease.observed_at).max(heartbeat);
    let config = &observed.config;
    match last {
        Some(last) if ready_condition.is_some() => last.plus(config.grace),
        _ => {
            let created = Meta::of(node).creation_timestamp().unwrap_or(Time::from_unix(0, 0));
            created.max(last.unwrap_or(created)).plus(config.startup_grace)
        }
    }
}

/// Sets all conditions that the kubelet reports to Unknown.
fn unknown(node: &Value, now: Time) -> Action {
    let mut conditions = node.list_at(&["status", "conditions"]).to_vec();
    for kind in KUBELET_CONDITIONS {
        match conditions.iter_mut().find(|it| it.text_at(&["type"]) == kind) {
            Some(condition) => {
                if condition.text_at(&["status"]) != "Unknown"
                    && let Some(condition) = condition.as_object_mut()
                {
                    condition.insert("status", "Unknown");
                    condition.insert("reason", "NodeStatusUnknown");
                    condition.insert("message", "Kubelet stopped posting node status.");
                    condition.insert("lastTransitionTime", now.to_seconds().to_string());
                }
            }
            None => {
                let created = Meta::of(node).creation_timestamp().unwrap_or(now).to_string();
                conditions.push(value!({"type": kind, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
                    "message": "Kubelet never posted node status.", "lastHeartbeatTime": created,
                    "lastTransitionTime": (now.to_seconds().to_string())}));
            }
        }
    }
    let mut object = node.clone();
    if let Some(status) =
        object.as_object_mut().and_then(|it| it.get_or_insert_with("status", Value::object).as_object_mut())
    {
        status.insert("conditions", conditions);
    }
    Action::UpdateStatus { resource: kinds::NODES.clone(), object }
}

/// Sets the Ready condition of a pod on an unhealthy node to False.
fn not_ready(pod: &Value, now: Time) -> Action {
    let status_patch = value!({"status": {"conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": (now.to_seconds().to_string())}]}});
    Action::Patch {
        resource: kinds::PODS.clone(),
        key: Key::of(pod),
        subresource: "status",
        only_if: Preconditions::same(pod),
        patch: Patch::Strategic(status_patch),
    }
}

#[cfg(test)]
mod tests;
