//! Deletes pods that do not tolerate what their node is tainted with, at once or after as long as they tolerate it.

use machinery::meta::Meta;
use machinery::time::{Duration, Time};
use machinery::{Key, Value, value};
use reconcile::{Action, Cache, Controller, EventType, Patch, Plan, Preconditions, Regarding, kinds};

use crate::read::{list, text};
use crate::{condition, pod};

/// The controller.
pub struct TaintEviction;

/// A pod and the node it is on.
pub struct Observed<'a> {
    pod: &'a Value,
    node: &'a Value,
}

impl Controller for TaintEviction {
    type Observed<'a> = Observed<'a>;
    const NAME: &'static str = "taint-eviction-controller";
    const READS: &'static [&'static str] = &["pods", "nodes"];
    const WRITES: &'static [&'static str] = &["pods", "pods/status", "nodes", "events"];

    fn concerns(cache: &Cache, kind: &str, object: &Value, keys: &mut Vec<Key>) {
        match kind {
            // A node without such taints concerns nobody: what it once had, its pods no longer wait for when they look.
            "nodes" if sends_away(object).next().is_some() => {
                keys.extend(cache.on_node("pods", Meta::of(object).name()).map(Key::of));
            }
            // Nor does a pod on such a node: it is told with the node's next taint.
            "pods" => {
                let node = cache.get("nodes", &Key::cluster(pod::node(object)));
                keys.extend(node.filter(|node| sends_away(node).next().is_some()).map(|_| Key::of(object)));
            }
            _ => {}
        }
    }

    fn observe<'a>(cache: &'a Cache, key: &Key) -> Option<Observed<'a>> {
        let pod = cache.get("pods", key)?;
        Some(Observed { pod, node: cache.get("nodes", &Key::cluster(pod::node(pod)))? })
    }

    fn plan(observed: &Observed<'_>, now: Time) -> Plan {
        let pod = observed.pod;
        if Meta::of(pod).is_deleting() {
            return Plan::default();
        }
        let mut until: Option<Time> = None;
        let mut ends = |time: Time| until = Some(until.map_or(time, |have| have.min(time)));
        for taint in sends_away(observed.node) {
            match tolerated(list(pod, &["spec", "tolerations"]), taint) {
                Tolerated::ForEver => {}
                Tolerated::Not => ends(now),
                Tolerated::For(seconds) => match taint.str_at(&["timeAdded"]).and_then(|it| Time::parse(it).ok()) {
                    Some(added) => ends(added.plus(Duration::from_seconds(seconds))),
                    None => return Plan::of(dated(observed.node, now)),
                },
            }
        }
        match until {
            None => Plan::default(),
            Some(time) if time <= now => evict(pod, &WORDS, now),
            Some(time) => Plan { wake_at: Some(time), ..Plan::default() },
        }
    }
}

/// What is said of an eviction.
pub(crate) struct Words {
    /// Why, in the pod's condition.
    pub reason: &'static str,
    /// The same for people.
    pub message: &'static str,
    /// The event's word.
    pub event: &'static str,
}

const WORDS: Words = Words {
    reason: "DeletionByTaintManager",
    message: "Taint manager: deleting due to NoExecute taint",
    event: "TaintManagerEviction",
};

/// How long a taint is tolerated.
pub(crate) enum Tolerated {
    Not,
    For(i64),
    ForEver,
}

/// The taints of a node that send pods away.
fn sends_away(node: &Value) -> impl Iterator<Item = &Value> {
    list(node, &["spec", "taints"]).iter().filter(|taint| text(taint, &["effect"]) == "NoExecute")
}

/// Whether and how long a taint is tolerated: the shortest time that a matching toleration gives.
pub(crate) fn tolerated(tolerations: &[Value], taint: &Value) -> Tolerated {
    let mut found = Tolerated::Not;
    for toleration in tolerations.iter().filter(|toleration| matches(toleration, taint)) {
        let seconds = toleration.get("tolerationSeconds").and_then(Value::as_int).map(|seconds| seconds.max(0));
        found = match (found, seconds) {
            (Tolerated::For(have), Some(seconds)) => Tolerated::For(have.min(seconds)),
            (Tolerated::For(have), None) => Tolerated::For(have),
            (_, Some(seconds)) => Tolerated::For(seconds),
            (_, None) => Tolerated::ForEver,
        };
    }
    found
}

fn matches(toleration: &Value, taint: &Value) -> bool {
    let said = |field| text(toleration, &[field]);
    let (effect, key) = (said("effect"), said("key"));
    if !effect.is_empty() && effect != text(taint, &["effect"]) || !key.is_empty() && key != text(taint, &["key"]) {
        return false;
    }
    let value = text(taint, &["value"]);
    match said("operator") {
        "" | "Equal" => said("value") == value,
        "Exists" => true,
        // Both are numbers or it is no match.
        operator => match (said("value").parse::<i64>(), value.parse::<i64>()) {
            (Ok(bound), Ok(value)) => (operator == "Gt" && value > bound) || (operator == "Lt" && value < bound),
            _ => false,
        },
    }
}

/// Deletes a pod, and says why.
pub(crate) fn evict(pod: &Value, words: &Words, now: Time) -> Plan {
    let mut plan = Plan::default();
    let meta = Meta::of(pod);
    if condition::find(pod, "DisruptionTarget").is_none_or(|it| it.str_at(&["status"]) != Some("True")) {
        let said = value!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True",
            "reason": (words.reason), "message": (words.message),
            "lastTransitionTime": (now.to_seconds().to_string())}]}});
        plan.push(Action::Patch {
            resource: kinds::PODS.clone(),
            key: Key::of(pod),
            subresource: "status",
            only_if: Preconditions::same(pod),
            patch: Patch::Strategic(said),
        });
    }
    plan.push(Action::delete(&kinds::PODS, pod));
    plan.push(Action::Event {
        regarding: Regarding::object(pod),
        kind: EventType::Normal,
        reason: words.event,
        message: format!("Marking for deletion Pod {}/{}", meta.namespace(), meta.name()),
    });
    plan
}

/// Writes down when a taint was first seen if nobody did, so that a time after it can be told by whoever looks next.
// DEVIATION: a NoExecute taint without a time gets one written when it is first seen; upstream remembers that in the process, and starts anew with each.
fn dated(node: &Value, now: Time) -> Action {
    let mut taints = list(node, &["spec", "taints"]).to_vec();
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
    use reconcile::testing::{World, kubelet, obeys_laws, settle};

    use super::*;

    fn world(taints: Value, tolerations: Value) -> World {
        let mut world = World::new(Time::from_unix(1_700_000_000, 0));
        world.add(&kinds::NODES, value!({"metadata": {"name": "n"}, "spec": {"taints": taints}}));
        world.add(
            &kinds::PODS,
            value!({"metadata": {"namespace": "a", "name": "p"}, "spec": {"nodeName": "n", "tolerations": tolerations},
                "status": {"phase": "Running"}}),
        );
        world
    }

    /// Seconds until the pod is gone, or -1 if it stays.
    fn check(taints: Value, tolerations: Value, expect: i64) {
        let mut world = world(taints, tolerations);
        obeys_laws::<TaintEviction>(&world, kubelet);
        let start = world.now;
        settle::<TaintEviction>(&mut world, kubelet);
        let gone = world.of("pods").is_empty();
        assert_eq!(if gone { world.now.since(start).whole_seconds() } else { -1 }, expect, "{:?}", world.log);
    }

    #[test]
    fn a_pod_goes_when_it_no_longer_tolerates_its_node() {
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
    fn pods_are_looked_at_where_their_node_sends_some_away() {
        let check = |taints: Value, expect: &[Key]| {
            let world = world(taints, value!([]));
            let mut keys = Vec::new();
            let pod = world.get(&kinds::PODS, &Key::new("a", "p")).unwrap();
            TaintEviction::concerns(&world.cache::<TaintEviction>(), "pods", pod, &mut keys);
            assert_eq!(keys, expect);
        };
        check(value!([{"key": "x", "effect": "NoExecute"}]), &[Key::new("a", "p")]);
        check(value!([{"key": "x", "effect": "NoSchedule"}]), &[]);
        check(value!([]), &[]);
    }

    #[test]
    fn it_says_why_before_it_deletes() {
        let mut world = world(value!([{"key": "x", "effect": "NoExecute"}]), value!([]));
        settle::<TaintEviction>(&mut world, |_| false);
        let pod = world.get(&kinds::PODS, &Key::new("a", "p")).unwrap();
        assert_eq!(condition::find(pod, "DisruptionTarget").unwrap()["reason"], "DeletionByTaintManager".into());
        assert!(Meta::of(pod).is_deleting());
    }
}
