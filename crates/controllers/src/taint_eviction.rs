//! Taint eviction: deletes pods that do not tolerate a NoExecute taint of their node, or no longer tolerate it.

use std::convert::Infallible;

use api::resources::{EVENTS, NODES, PODS};
use api::view::{Pod, Taint, Toleration};
use apimachinery::meta::Meta;
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, EventType, Patch, Plan, Preconditions, Regarding, Write, kinds};

use crate::condition;

pub struct TaintEviction;

pub struct Observation<'a> {
    pod: &'a Value,
    node: &'a Value,
}

impl Controller for TaintEviction {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "taint-eviction-controller";
    const READS: &'static [GroupResource] = &[PODS, NODES];
    const WRITES: &'static [Write] = &[(PODS, ""), (PODS, "status"), (NODES, ""), (EVENTS, "")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            // A node without NoExecute taints triggers no pods: a pod that waits for an earlier taint finds it removed
            // when it wakes up.
            NODES if sends_away(object).next().is_some() => {
                keys.extend(cache.on_node(PODS, Meta::of(object).name()).map(Key::of));
            }
            // A pod on a node without NoExecute taints is not triggered: the node's next taint triggers it.
            PODS => {
                let node = cache.get(NODES, &Key::cluster(Pod(object).node_name()));
                keys.extend(node.filter(|node| sends_away(node).next().is_some()).map(|_| Key::of(object)));
            }
            _ => {}
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let pod = cache.get(PODS, key)?;
        Some(Observation { pod, node: cache.get(NODES, &Key::cluster(Pod(pod).node_name()))? })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let pod = observed.pod;
        if Meta::of(pod).is_deleting() {
            return Plan::default();
        }
        let mut until: Option<Time> = None;
        let mut ends = |time: Time| until = Some(until.map_or(time, |have| have.min(time)));
        for taint in sends_away(observed.node) {
            match tolerated(pod.list_at(&["spec", "tolerations"]), taint) {
                TolerationPeriod::Forever => {}
                TolerationPeriod::NotTolerated => ends(now),
                TolerationPeriod::Seconds(seconds) => {
                    match taint.str_at(&["timeAdded"]).and_then(|it| Time::parse(it).ok()) {
                        Some(added) => ends(added.plus(Duration::from_seconds(seconds))),
                        None => return Plan::of(dated(observed.node, now)),
                    }
                }
            }
        }
        match until {
            None => Plan::default(),
            Some(time) if time <= now => evict(pod, &MESSAGES, now),
            Some(time) => Plan { wake_at: Some(time), ..Plan::default() },
        }
    }
}

/// The texts of an eviction.
pub(crate) struct EvictionMessages {
    /// The reason of the pod's DisruptionTarget condition.
    pub reason: &'static str,
    /// The message of the condition.
    pub message: &'static str,
    /// The reason of the event.
    pub event: &'static str,
}

const MESSAGES: EvictionMessages = EvictionMessages {
    reason: "DeletionByTaintManager",
    message: "Taint manager: deleting due to NoExecute taint",
    event: "TaintManagerEviction",
};

pub(crate) enum TolerationPeriod {
    NotTolerated,
    Seconds(i64),
    Forever,
}

/// Returns the NoExecute taints of a node.
fn sends_away(node: &Value) -> impl Iterator<Item = &Value> {
    node.list_at(&["spec", "taints"]).iter().filter(|taint| taint.text_at(&["effect"]) == "NoExecute")
}

/// Returns the shortest duration that a matching toleration allows.
pub(crate) fn tolerated(tolerations: &[Value], taint: &Value) -> TolerationPeriod {
    let mut found = TolerationPeriod::NotTolerated;
    for toleration in tolerations.iter().filter(|toleration| Toleration::of(toleration).tolerates(Taint::of(taint))) {
        let seconds = toleration.get("tolerationSeconds").and_then(Value::as_int).map(|seconds| seconds.max(0));
        found = match (found, seconds) {
            (TolerationPeriod::Seconds(have), Some(seconds)) => TolerationPeriod::Seconds(have.min(seconds)),
            (TolerationPeriod::Seconds(have), None) => TolerationPeriod::Seconds(have),
            (_, Some(seconds)) => TolerationPeriod::Seconds(seconds),
            (_, None) => TolerationPeriod::Forever,
        };
    }
    found
}

/// Sets the DisruptionTarget condition, emits an event and deletes the pod.
pub(crate) fn evict(pod: &Value, messages: &EvictionMessages, now: Time) -> Plan {
    let mut plan = Plan::default();
    let meta = Meta::of(pod);
    if condition::find(pod, "DisruptionTarget").is_none_or(|it| it.str_at(&["status"]) != Some("True")) {
        let status_patch = value!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True",
            "reason": (messages.reason), "message": (messages.message),
            "lastTransitionTime": (now.to_seconds().to_string())}]}});
        plan.push(Action::Patch {
            resource: kinds::PODS.clone(),
            key: Key::of(pod),
            subresource: "status",
            only_if: Preconditions::same(pod),
            patch: Patch::Strategic(status_patch),
        });
    }
    plan.push(Action::delete(&kinds::PODS, pod));
    plan.push(Action::Event {
        regarding: Regarding::object(pod),
        kind: EventType::Normal,
        reason: messages.event,
        message: format!("Marking for deletion Pod {}/{}", meta.namespace(), meta.name()),
    });
    plan
}

/// Sets timeAdded of NoExecute taints without one, so that the toleration period has a stored start.
// DEVIATION: a NoExecute taint without timeAdded gets the time at which it is first observed; upstream keeps that time
// in memory and restarts the period with each process.
fn dated(node: &Value, now: Time) -> Action {
    let mut taints = node.list_at(&["spec", "taints"]).to_vec();
    for taint in taints.iter_mut().filter_map(Value::as_object_mut) {
        if taint.get("effect").and_then(Value::as_str) == Some("NoExecute") {
            taint.get_or_insert_with("timeAdded", || now.to_seconds().to_string().into());
        }
    }
    Action::Patch {
        resource: kinds::NODES.clone(),
        key: Key::of(node),
        subresource: "",
        only_if: Preconditions::unchanged(node),
        patch: Patch::Merge(value!({"spec": {"taints": taints}})),
    }
}

#[cfg(test)]
mod tests {
    use controller::testing::{FakeCluster, check_properties, kubelet, run_until_stable};

    use super::*;

    fn new_cluster(taints: Value, tolerations: Value) -> FakeCluster {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        cluster.add(&kinds::NODES, value!({"metadata": {"name": "n"}, "spec": {"taints": taints}}));
        cluster.add(
            &kinds::PODS,
            value!({"metadata": {"namespace": "a", "name": "p"}, "spec": {"nodeName": "n", "tolerations": tolerations},
                "status": {"phase": "Running"}}),
        );
        cluster
    }

    /// Checks the seconds until the pod is deleted; -1 if it stays.
    fn check(taints: Value, tolerations: Value, expect: i64) {
        let mut cluster = new_cluster(taints, tolerations);
        check_properties::<TaintEviction>(&cluster, kubelet);
        let start = cluster.now;
        run_until_stable::<TaintEviction>(&mut cluster, kubelet);
        let deleted = cluster.of(PODS).is_empty();
        assert_eq!(if deleted { cluster.now.since(start).whole_seconds() } else { -1 }, expect, "{:?}", cluster.log);
    }

    #[test]
    fn pod_is_deleted_when_its_toleration_expires() {
        let taint = |key: &str| value!([{"key": key, "value": "v", "effect": "NoExecute", "timeAdded": "2023-11-14T22:13:20Z"}]);
        check(taint("x"), value!([]), 0);
        check(taint("x"), value!([{"key": "y", "operator": "Exists"}]), 0);
        check(taint("x"), value!([{"operator": "Exists"}]), -1);
        check(taint("x"), value!([{"key": "x", "value": "v", "effect": "NoExecute"}]), -1);
        check(taint("x"), value!([{"key": "x", "value": "w"}]), 0);
        check(taint("x"), value!([{"key": "x", "operator": "Exists", "tolerationSeconds": 300}]), 300);
        check(
            taint("x"),
            value!([{"operator": "Exists", "tolerationSeconds": 9}, {"key": "x", "operator": "Exists"}]),
            9,
        );
        check(value!([{"key": "x", "effect": "NoSchedule"}]), value!([]), -1);
        check(
            value!([{"key": "x", "effect": "NoExecute"}]),
            value!([{"operator": "Exists", "tolerationSeconds": 7}]),
            7,
        );
    }

    #[test]
    fn only_pods_on_nodes_with_no_execute_taints_are_triggered() {
        let check = |taints: Value, expect: &[Key]| {
            let cluster = new_cluster(taints, value!([]));
            let mut keys = Vec::new();
            let pod = cluster.get(&kinds::PODS, &Key::new("a", "p")).unwrap();
            TaintEviction::affected_keys(&cluster.cache::<TaintEviction>(), PODS, pod, &mut keys);
            assert_eq!(keys, expect);
        };
        check(value!([{"key": "x", "effect": "NoExecute"}]), &[Key::new("a", "p")]);
        check(value!([{"key": "x", "effect": "NoSchedule"}]), &[]);
        check(value!([]), &[]);
    }

    #[test]
    fn disruption_target_condition_is_set_before_deletion() {
        let mut cluster = new_cluster(value!([{"key": "x", "effect": "NoExecute"}]), value!([]));
        run_until_stable::<TaintEviction>(&mut cluster, |_| false);
        let pod = cluster.get(&kinds::PODS, &Key::new("a", "p")).unwrap();
        assert_eq!(condition::find(pod, "DisruptionTarget").unwrap()["reason"], "DeletionByTaintManager".into());
        assert!(Meta::of(pod).is_deleting());
    }
}
