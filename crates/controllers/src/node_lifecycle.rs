//! Says of nodes that have fallen silent that nothing is known of them, and keeps pods away from nodes that are not well.

mod taints;
mod zones;

use machinery::meta::Meta;
use machinery::time::{Duration, Time};
use machinery::{Key, Value, value};
use reconcile::{Action, Cache, Controller, EventType, Patch, Plan, Preconditions, Regarding, kinds};

use crate::read::{list, text};
use crate::{condition, pod};

pub use zones::Rates;

const LEASES: &str = "kube-node-lease";
/// What a kubelet says about its node.
const SAID_BY_KUBELET: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// How long silence is borne, and how fast nodes are emptied.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// A node that was heard of.
    pub grace: Duration,
    /// A node that was never heard of.
    pub startup_grace: Duration,
    /// How fast nodes of a zone are emptied.
    pub rates: Rates,
}

impl Default for Config {
    fn default() -> Self {
        Self { grace: Duration::from_seconds(50), startup_grace: Duration::from_seconds(60), rates: Rates::default() }
    }
}

/// The controller.
pub struct NodeLifecycle;

/// A node, its lease, the pods on it, and all nodes.
pub struct Observed<'a> {
    node: &'a Value,
    lease: Option<&'a Value>,
    pods: Vec<&'a Value>,
    all: Vec<&'a Value>,
    config: Config,
}

impl Controller for NodeLifecycle {
    type Observed<'a> = Observed<'a>;
    const NAME: &'static str = "node-controller";
    const READS: &'static [&'static str] = &["nodes", "leases.coordination.k8s.io", "pods"];
    const WRITES: &'static [&'static str] = &["nodes", "nodes/status", "pods/status", "events"];

    fn concerns(cache: &Cache, kind: &str, object: &Value, keys: &mut Vec<Key>) {
        let meta = Meta::of(object);
        match kind {
            "nodes" => keys.push(Key::of(object)),
            // A pod is not to be ready on a node that is not; what becomes of the others is no matter of their node's.
            "pods" if pod::is_ready(object) => {
                let key = Key::cluster(pod::node(object));
                keys.extend(cache.get("nodes", &key).filter(|node| ready(node) != "True").map(|_| key));
            }
            "leases.coordination.k8s.io" if meta.namespace() == LEASES => keys.push(Key::cluster(meta.name())),
            _ => {}
        }
    }

    fn observe<'a>(cache: &'a Cache, key: &Key) -> Option<Observed<'a>> {
        Some(Observed {
            node: cache.get("nodes", key)?,
            lease: cache.get("leases.coordination.k8s.io", &Key::new(LEASES, key.name.clone())),
            pods: cache.on_node("pods", &key.name).collect(),
            all: cache.of("nodes").iter().map(|entry| &entry.value).collect(),
            config: cache.config().copied().unwrap_or_default(),
        })
    }

    fn plan(observed: &Observed<'_>, now: Time) -> Plan {
        let node = observed.node;
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
            plan.actions.extend(observed.pods.iter().filter(|pod| pod::is_ready(pod)).map(|pod| not_ready(pod, now)));
        }
        let zone = zones::judge(node, &observed.all, &observed.config.rates, now);
        if let Some(time) = zone.wake_at {
            plan.wake(time);
        }
        plan.actions.extend(taints::update(node, ready, zone.may_empty, now));
        plan
    }
}

/// What a node says of itself; `Unknown` if it never said anything.
fn ready(node: &Value) -> &str {
    condition::find(node, "Ready").and_then(|it| it.str_at(&["status"])).unwrap_or("Unknown")
}

/// When a node counts as silent unless it is heard of before.
// DEVIATION: upstream measures silence by its own clock from when it saw a sign of life; this trusts the time in the sign.
fn silent_at(observed: &Observed<'_>) -> Time {
    let time = |object: Option<&Value>, path: &[&str]| Time::parse(object?.str_at(path)?).ok();
    let said = condition::find(observed.node, "Ready");
    let renewed = observed.lease.and_then(|lease| Time::parse_micro(lease.str_at(&["spec", "renewTime"])?).ok());
    let last = time(said, &["lastHeartbeatTime"]).max(renewed);
    let config = &observed.config;
    match last {
        Some(last) if said.is_some() => last.plus(config.grace),
        _ => {
            let created = Meta::of(observed.node).creation_timestamp().unwrap_or(Time::from_unix(0, 0));
            created.max(last.unwrap_or(created)).plus(config.startup_grace)
        }
    }
}

/// The node with everything that its kubelet said declared unknown.
fn unknown(node: &Value, now: Time) -> Action {
    let mut conditions = list(node, &["status", "conditions"]).to_vec();
    for kind in SAID_BY_KUBELET {
        match conditions.iter_mut().find(|it| text(it, &["type"]) == kind) {
            Some(said) => {
                if text(said, &["status"]) != "Unknown"
                    && let Some(said) = said.as_object_mut()
                {
                    said.insert("status", "Unknown");
                    said.insert("reason", "NodeStatusUnknown");
                    said.insert("message", "Kubelet stopped posting node status.");
                    said.insert("lastTransitionTime", now.to_seconds().to_string());
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

/// A pod of a node that is not well no longer serves.
fn not_ready(pod: &Value, now: Time) -> Action {
    let said = value!({"status": {"conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": (now.to_seconds().to_string())}]}});
    Action::Patch {
        resource: kinds::PODS.clone(),
        key: Key::of(pod),
        subresource: "status",
        only_if: Preconditions::same(pod),
        patch: Patch::Strategic(said),
    }
}

#[cfg(test)]
mod tests;
