//! Pod garbage collector: deletes orphaned, unscheduled terminating, and surplus terminated pods.

use std::convert::Infallible;

use api::resources::{NODES, PODS};
use api::view::{Node, Pod, condition_status};
use apimachinery::meta::Meta;
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, Patch, Plan, Preconditions, Write, kinds};

use crate::condition;

/// Delay before a pod of a missing node is deleted, because the node cache may be older than the pod.
const QUARANTINE: Duration = Duration::from_seconds(40);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// `--terminated-pod-gc-threshold`: maximum terminated pods; zero or less disables the limit.
    pub terminated_pods_max: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self { terminated_pods_max: 12_500 }
    }
}

pub struct PodGc;

/// One pod, or all terminated pods.
#[derive(Debug)]
pub enum Observation<'a> {
    Pod {
        pod: &'a Value,
        /// The node of the pod, if it exists.
        node: Option<&'a Value>,
    },
    /// Terminated pods that are not being deleted.
    Terminated {
        pods: Vec<&'a Value>,
        /// Maximum number of terminated pods.
        max: i64,
    },
}

impl Controller for PodGc {
    type Observed<'a> = Observation<'a>;
    type Config = Config;
    type Effect = Infallible;
    const NAME: &'static str = "pod-garbage-collector";
    const READS: &'static [GroupResource] = &[PODS, NODES];
    const WRITES: &'static [Write] = &[(PODS, ""), (PODS, "status")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        if kind == NODES {
            let pods = cache.on_node(PODS, Meta::of(object).name());
            keys.extend(pods.map(Key::of));
            return;
        }
        // Only pods that are being deleted or whose node does not exist are relevant. Other pods are triggered by the
        // deletion of their node.
        let node = Pod(object).node_name();
        let lost = !node.is_empty() && cache.get(NODES, &Key::cluster(node)).is_none();
        if lost || Meta::of(object).is_deleting() {
            keys.push(Key::of(object));
        }
        if Pod(object).is_terminal() {
            keys.push(everything());
        }
    }

    /// Updates of a node matter only if its spec, which has the taints, or its Ready status changes.
    fn is_relevant_change(kind: GroupResource, old: &Value, new: &Value) -> bool {
        let ready = |node| condition_status(node, "Ready");
        kind != NODES || old.get("spec") != new.get("spec") || ready(old) != ready(new)
    }

    fn observe<'a>(cache: &'a Cache, config: &'a Config, key: &Key) -> Option<Observation<'a>> {
        if *key == everything() {
            let max = config.terminated_pods_max;
            let pods = cache.of(PODS).iter().map(|entry| &entry.value);
            let terminated_pods = pods.filter(|pod| Pod(pod).is_terminal() && !Meta::of(pod).is_deleting());
            return Some(Observation::Terminated { pods: terminated_pods.collect(), max });
        }
        let pod = cache.get(PODS, key)?;
        Some(Observation::Pod { pod, node: cache.get(NODES, &Key::cluster(Pod(pod).node_name())) })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        match observed {
            Observation::Terminated { pods, max } => beyond(pods, *max),
            Observation::Pod { pod, .. } if Pod(pod).node_name().is_empty() => going_nowhere(pod),
            Observation::Pod { pod, node: None } => without_node(pod, now),
            Observation::Pod { pod, node: Some(node) } => out_of_service(pod, node),
        }
    }
}

/// Returns the key for all terminated pods.
fn everything() -> Key {
    Key::cluster("")
}

/// Deletes the oldest pods beyond `max`.
fn beyond(terminated_pods: &[&Value], max: i64) -> Plan {
    let Some(max) = usize::try_from(max).ok().filter(|max| *max > 0) else { return Plan::default() };
    let mut all = terminated_pods.to_vec();
    all.sort_by_cached_key(|pod| (Meta::of(pod).creation_timestamp(), Meta::of(pod).name().to_owned()));
    let surplus = all.len().saturating_sub(max);
    Plan { actions: all.into_iter().take(surplus).map(at_once).collect(), ..Plan::default() }
}

/// Deletes a terminating pod that was never bound: there is no kubelet to confirm its termination.
fn going_nowhere(pod: &Value) -> Plan {
    let gated = Meta::of(pod).is_deleting() && Meta::of(pod).finalizers().next().is_none();
    if gated { Plan::of(at_once(pod)) } else { Plan::default() }
}

fn without_node(pod: &Value, now: Time) -> Plan {
    let placed = condition::find(pod, "PodScheduled").and_then(|have| have.str_at(&["lastTransitionTime"]));
    let placed = placed.and_then(|text| Time::parse(text).ok()).or_else(|| Meta::of(pod).creation_timestamp());
    if let Some(until) = placed.map(|at| at.plus(QUARANTINE)).filter(|until| *until > now) {
        return Plan { wake_at: Some(until), ..Plan::default() };
    }
    marked_and_deleted(pod, "PodGC: node no longer exists", now)
}

/// Deletes a terminating pod of a node with the out-of-service taint, because its kubelet does not run.
fn out_of_service(pod: &Value, node: &Value) -> Plan {
    let off = Node(node).taints().any(|taint| taint.key == "node.kubernetes.io/out-of-service");
    if off && !Node(node).is_ready() && Meta::of(pod).is_deleting() { Plan::of(at_once(pod)) } else { Plan::default() }
}

/// Sets the DisruptionTarget condition first, so that controllers can evaluate the failure, then deletes the pod.
fn marked_and_deleted(pod: &Value, message: &str, now: Time) -> Plan {
    if Pod(pod).is_terminal() || condition::find(pod, "DisruptionTarget").is_some() {
        return Plan::of(at_once(pod));
    }
    let mark = value!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": message,
        "lastTransitionTime": (now.to_string())});
    Plan::of(Action::Patch {
        resource: kinds::PODS.clone(),
        key: Key::of(pod),
        subresource: "status",
        only_if: Preconditions::same(pod),
        patch: Patch::Strategic(value!({"status": {"phase": "Failed", "conditions": [mark]}})),
    })
}

fn at_once(pod: &Value) -> Action {
    let mut action = Action::delete(&kinds::PODS, pod);
    if let Action::Delete { grace_seconds, .. } = &mut action {
        *grace_seconds = Some(0);
    }
    action
}

#[cfg(test)]
mod tests {
    use controller::decide;
    use controller::testing::{FakeCluster, check_properties, run_until_stable};
    use proptest::prelude::*;

    use super::*;

    fn new_cluster() -> FakeCluster {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        cluster.add(&kinds::NODES, value!({"metadata": {"name": "n"}}));
        cluster
    }

    fn add(cluster: &mut FakeCluster, name: &str, node: &str, phase: &str) -> Key {
        let pod = value!({"metadata": {"namespace": "a", "name": name}, "spec": {"nodeName": node}, "status": {"phase": phase}});
        cluster.add(&kinds::PODS, pod)
    }

    #[test]
    fn pod_of_a_deleted_node_fails_and_is_deleted_after_the_quarantine() {
        let mut cluster = new_cluster();
        add(&mut cluster, "kept", "n", "Running");
        add(&mut cluster, "lost", "gone", "Running");
        add(&mut cluster, "waits", "", "Pending");
        check_properties::<PodGc>(&cluster, |_| false);
        let start = cluster.now;
        run_until_stable::<PodGc>(&mut cluster, |_| false);
        assert_eq!(cluster.now.since(start).whole_seconds(), 40);
        assert!(cluster.log[0].contains("DeletionByPodGC"), "{:?}", cluster.log);
        assert_eq!(cluster.log[1], "delete pods a/lost within 0s");
        assert_eq!(cluster.of(PODS).len(), 2);
    }

    #[test]
    fn oldest_terminated_pods_beyond_the_threshold_are_deleted() {
        let mut cluster = new_cluster();
        for (at, phase) in ["Failed", "Succeeded", "Running", "Failed"].iter().enumerate() {
            cluster.now = cluster.now.plus(Duration::from_seconds(1));
            add(&mut cluster, &format!("p{at}"), "n", phase);
        }
        let plan = |max| {
            let config = Config { terminated_pods_max: max };
            decide::<PodGc>(&cluster.cache::<PodGc>(), &config, &everything(), cluster.now).to_string()
        };
        assert_eq!(plan(1), "delete pods a/p0 within 0s\ndelete pods a/p1 within 0s\n");
        assert_eq!(plan(0), "");
        assert_eq!(plan(3), "");
    }

    #[test]
    fn terminating_pods_of_an_out_of_service_node_are_force_deleted() {
        let mut cluster = new_cluster();
        cluster.change(&kinds::NODES, &Key::cluster("n"), |node| {
            let off =
                value!({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}});
            *node = apimachinery::patch::merge::apply(node.take(), off);
        });
        let going = add(&mut cluster, "going", "n", "Running");
        add(&mut cluster, "stays", "n", "Running");
        cluster.delete(&kinds::PODS, &going, None, None);
        run_until_stable::<PodGc>(&mut cluster, |_| false);
        assert_eq!(cluster.log, ["delete pods a/going within 0s"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

        #[test]
        fn properties_hold_in_generated_clusters(pods in prop::collection::vec(
            (prop::sample::select(vec!["", "n", "gone"]), prop::sample::select(vec!["Pending", "Running", "Failed"]), any::<bool>()), 0..6)) {
            let mut cluster = new_cluster();
            for (at, (node, phase, going)) in pods.iter().enumerate() {
                let key = add(&mut cluster, &format!("p{at}"), node, phase);
                if *going {
                    cluster.delete(&kinds::PODS, &key, None, None);
                }
            }
            check_properties::<PodGc>(&cluster, |_| false);
        }
    }
}
