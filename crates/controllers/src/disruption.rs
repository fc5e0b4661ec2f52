//! Disruption controller: computes the status of PodDisruptionBudgets, such as disruptionsAllowed.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use api::resources::{
    CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, EVENTS, POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS,
    REPLICATION_CONTROLLERS, STATEFUL_SETS,
};
use api::view::Pod;
use apimachinery::labels::Selector;
use apimachinery::meta::{Meta, OwnerReference};
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Object, Value, value};
use controller::{Action, Cache, Controller, EventType, Plan, Regarding, ServerQuery, Write, kinds};

use crate::{condition, int_or_percent, scale_target};

/// Time after which a pod whose eviction was granted, but that was not deleted, counts as healthy again.
const DELETION_TIMEOUT: Duration = Duration::from_seconds(120);
/// The built-in workloads with `spec.replicas`.
const WORKLOADS: &[GroupResource] = &[REPLICA_SETS, DEPLOYMENTS, STATEFUL_SETS, REPLICATION_CONTROLLERS];

pub struct Disruption;

/// A PodDisruptionBudget, its pods, and the expected number of pods.
#[derive(Debug)]
pub struct Observation<'a> {
    budget: &'a Value,
    pods: Vec<&'a Value>,
    /// The sum of the workloads' replicas, or an error if a pod's controller is not found.
    expected: Result<i64, String>,
}

impl Controller for Disruption {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "controllermanager";
    const READS: &'static [GroupResource] = &[
        POD_DISRUPTION_BUDGETS,
        PODS,
        REPLICA_SETS,
        DEPLOYMENTS,
        STATEFUL_SETS,
        REPLICATION_CONTROLLERS,
        CUSTOM_RESOURCE_DEFINITIONS,
    ];
    const WRITES: &'static [Write] = &[(POD_DISRUPTION_BUDGETS, "status"), (EVENTS, "")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        if kind == POD_DISRUPTION_BUDGETS {
            keys.push(Key::of(object));
            return;
        }
        // CRDs are also in `READS`. They have no pod template and affect no budget.
        let labels = if kind == PODS { Some(object) } else { object.at(&["spec", "template"]) };
        let Some(labels) = labels else { return };
        for entry in cache.of(POD_DISRUPTION_BUDGETS).in_namespace(Meta::of(object).namespace()) {
            if selector(&entry.value).is_some_and(|selector| selector.matches_labels(Meta::of(labels).labels())) {
                keys.push(entry.key.clone());
            }
        }
    }

    /// Requests the scale subresource of custom workloads.
    fn queries(cache: &Cache, key: &Key, _: Time) -> Vec<ServerQuery> {
        let Some(budget) = cache.get(POD_DISRUPTION_BUDGETS, key) else { return Vec::new() };
        let mut queries: Vec<ServerQuery> = Vec::new();
        for pod in pods_of(cache, budget) {
            let Some(owner) = Meta::of(pod).controller() else { continue };
            if is_custom(owner.api_version()) {
                let query = scale_of(cache, pod, owner);
                if !queries.contains(&query) {
                    queries.push(query);
                }
            }
        }
        queries
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let budget = cache.get(POD_DISRUPTION_BUDGETS, key)?;
        let pods = pods_of(cache, budget);
        let expected = expected(cache, &pods);
        Some(Observation { budget, pods, expected })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let Observation { budget, pods, expected } = observed;
        let mut plan = Plan::default();
        let disrupted = disrupted(budget, pods, now, &mut plan);
        let (expected, desired) = match needed(budget, pods, expected) {
            Ok(counts) => counts,
            Err(cause) => return failed(budget, &cause, now),
        };
        let is_healthy = |pod: &&&Value| {
            !Meta::of(pod).is_deleting() && !disrupted.contains_key(Meta::of(pod).name()) && Pod(pod).is_ready()
        };
        let healthy = i64::try_from(pods.iter().filter(is_healthy).count()).unwrap_or(i64::MAX);
        // A budget without pods allows no disruption: pods may be created before the next reconciliation.
        let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
        let mut status = Object::new();
        status.insert("currentHealthy", healthy);
        status.insert("desiredHealthy", desired);
        status.insert("disruptionsAllowed", allowed);
        status.insert("expectedPods", expected);
        status.insert("observedGeneration", Meta::of(budget).generation());
        if !disrupted.is_empty() {
            status.insert("disruptedPods", disrupted.into_iter().collect::<Object>());
        }
        let reason = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
        let update = write(budget, status, reason, "", now);
        if pods.is_empty() && update.is_some() {
            plan.push(event(budget, EventType::Normal, "NoPods", "No matching pods found".to_owned()));
        }
        plan.actions.extend(update);
        plan
    }
}

fn pods_of<'a>(cache: &'a Cache, budget: &Value) -> Vec<&'a Value> {
    let Some(selector) = selector(budget) else { return Vec::new() };
    let pods = cache.in_namespace(PODS, Meta::of(budget).namespace());
    pods.filter(|pod| selector.matches_object(pod)).collect()
}

/// Whether the API group is that of a custom resource. Unknown built-in kinds have no scale.
fn is_custom(api_version: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    group.contains('.') && !group.ends_with(".k8s.io")
}

fn scale_of(cache: &Cache, pod: &Value, owner: OwnerReference<'_>) -> ServerQuery {
    ServerQuery {
        resource: scale_target::resource(cache, owner.api_version(), owner.kind()),
        key: Key::new(Meta::of(pod).namespace(), owner.name()),
        subresource: "scale".into(),
        labels: None,
        body: None,
        as_of: None,
    }
}

/// Returns the replicas of the custom workload that controls the pod.
fn scaled(cache: &Cache, pod: &Value, owner: OwnerReference<'_>) -> Result<i64, String> {
    let scale =
        cache.response(&scale_of(cache, pod, owner)).cloned().unwrap_or_else(|| Err("it was not requested".into()))?;
    if Meta::of(&scale).uid() != owner.uid() {
        return Err(format!("found no controllers for pod {:?}", Meta::of(pod).name()));
    }
    Ok(scale.int_at(&["spec", "replicas"]).unwrap_or(0))
}

/// Returns the selector. An empty selector matches all pods, a missing one none.
fn selector(budget: &Value) -> Option<Selector> {
    let selector = budget.at(&["spec", "selector"]).filter(|selector| !selector.is_null())?;
    apimachinery::labels::from_object(Some(selector)).ok()
}

/// Returns the expected and the desired healthy number of pods.
fn needed(budget: &Value, pods: &[&Value], expected: &Result<i64, String>) -> Result<(i64, i64), String> {
    let stated = |field| budget.at(&["spec", field]).filter(|value| !value.is_null());
    if let Some(unavailable) = stated("maxUnavailable") {
        let expected = expected.clone()?;
        return Ok((expected, (expected - int_or_percent::up(Some(unavailable), expected)).max(0)));
    }
    match stated("minAvailable") {
        Some(Value::Int(number)) => Ok((i64::try_from(pods.len()).unwrap_or(i64::MAX), *number)),
        some => {
            let expected = expected.clone()?;
            Ok((expected, int_or_percent::up(some, expected)))
        }
    }
}

/// Returns the sum of the replicas of all workloads of the pods. Pods without a controller are not counted.
fn expected(cache: &Cache, pods: &[&Value]) -> Result<i64, String> {
    let mut seen = BTreeSet::new();
    let mut total = 0;
    for pod in pods {
        let meta = Meta::of(pod);
        let Some(owner) = meta.controller() else { continue };
        if !seen.insert(owner.uid().to_owned()) {
            continue;
        }
        let found = WORKLOADS.iter().find_map(|kind| {
            let workload = cache.get(*kind, &Key::new(meta.namespace(), owner.name()))?;
            (Meta::of(workload).uid() == owner.uid()).then_some(workload)
        });
        if found.is_none() && is_custom(owner.api_version()) {
            total += scaled(cache, pod, owner)?;
            continue;
        }
        let Some(found) = found else { return Err(format!("found no controllers for pod {:?}", meta.name())) };
        // The replicas of a Deployment include those of its ReplicaSet.
        let whole = Meta::of(found).controller().filter(|owner| owner.kind() == "Deployment").and_then(|owner| {
            let deployment = cache.get(DEPLOYMENTS, &Key::new(meta.namespace(), owner.name()))?;
            (Meta::of(deployment).uid() == owner.uid()).then_some(deployment)
        });
        let counted = whole.is_none_or(|whole| seen.insert(Meta::of(whole).uid().to_owned()));
        if counted {
            total += whole.unwrap_or(found).int_at(&["spec", "replicas"]).unwrap_or(1);
        }
    }
    Ok(total)
}

/// Returns the disruptedPods that are not being deleted yet and within the timeout.
fn disrupted(budget: &Value, pods: &[&Value], now: Time, plan: &mut Plan) -> BTreeMap<String, Value> {
    let mut disrupted_pods = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !Meta::of(pod).is_deleting()) {
        let name = Meta::of(pod).name();
        let Some(granted) = budget.at(&["status", "disruptedPods", name]) else { continue };
        let until = granted.as_str().and_then(|text| Time::parse(text).ok()).map(|at| at.plus(DELETION_TIMEOUT));
        if let Some(until) = until.filter(|until| *until > now) {
            plan.wake(until);
            disrupted_pods.insert(name.to_owned(), granted.clone());
        } else {
            let (namespace, budget_name) = (Meta::of(budget).namespace(), Meta::of(budget).name());
            let message = format!("Pod was expected by PDB {namespace}/{budget_name} to be deleted but it wasn't");
            let regarding = Regarding::object(pod);
            plan.push(Action::Event { regarding, kind: EventType::Warning, reason: "NotDeleted", message });
        }
    }
    disrupted_pods
}

/// Allows no disruptions and sets the failure condition if the expected number of pods is unknown.
fn failed(budget: &Value, cause: &str, now: Time) -> Plan {
    let mut status = budget.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    status.insert("disruptionsAllowed", 0);
    status.insert("observedGeneration", Meta::of(budget).generation());
    let mut plan = Plan::waiting(cause);
    if let Some(update) = write(budget, status, ("False", "SyncFailed"), cause, now) {
        let message = format!("Failed to calculate the number of expected pods: {cause}");
        plan.push(event(budget, EventType::Warning, "CalculateExpectedPodCountFailed", message));
        plan.push(update);
    }
    plan
}

fn write(budget: &Value, mut status: Object, reason: (&str, &str), message: &str, now: Time) -> Option<Action> {
    let mut conditions = budget.list_at(&["status", "conditions"]).to_vec();
    let old = condition::in_list(&conditions, "DisruptionAllowed").cloned();
    let unchanged = old.filter(|old| old.str_at(&["status"]) == Some(reason.0));
    let since = unchanged.and_then(|old| old.str_at(&["lastTransitionTime"]).map(str::to_owned));
    condition::remove(&mut conditions, "DisruptionAllowed");
    conditions.push(value!({"type": "DisruptionAllowed", "status": (reason.0), "reason": (reason.1), "message": message,
        "lastTransitionTime": (since.unwrap_or_else(|| now.to_string())), "observedGeneration": (Meta::of(budget).generation())}));
    status.insert("conditions", conditions);
    let status = Value::Object(status);
    (budget.get("status") != Some(&status)).then(|| {
        let mut object = budget.clone();
        object.as_object_mut().expect("cached objects are JSON objects").insert("status", status);
        Action::UpdateStatus { resource: kinds::POD_DISRUPTION_BUDGETS.clone(), object }
    })
}

fn event(budget: &Value, kind: EventType, reason: &'static str, message: String) -> Action {
    Action::Event { regarding: Regarding::object(budget), kind, reason, message }
}

#[cfg(test)]
mod tests {
    use apimachinery::patch::merge;
    use controller::testing::{FakeCluster, check_properties, kubelet, run_until_stable};
    use proptest::prelude::*;

    use super::*;

    fn pod(name: &str, owner: Option<&str>, ready: bool) -> Value {
        let status = if ready { "True" } else { "False" };
        let owners = owner.map(|uid| value!({"uid": uid, "controller": true, "kind": "ReplicaSet", "name": "web"}));
        value!({"metadata": {"namespace": "a", "name": name, "labels": {"app": "web"}, "ownerReferences": (owners.into_iter().collect::<Vec<_>>())},
            "spec": {"nodeName": "n"}, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]}})
    }

    /// Adds a ReplicaSet with three replicas and `pods` pods, of which `ready` are ready.
    fn new_cluster(spec: Value, pods: usize, ready: usize) -> FakeCluster {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let set = value!({"metadata": {"namespace": "a", "name": "web"}, "spec": {"replicas": 3, "template": {"metadata": {"labels": {"app": "web"}}}}});
        let key = cluster.add(&kinds::REPLICA_SETS, set);
        let uid = Meta::of(cluster.get(&kinds::REPLICA_SETS, &key).unwrap()).uid().to_owned();
        for at in 0..pods {
            cluster.add(&kinds::PODS, pod(&format!("p{at}"), Some(&uid), at < ready));
        }
        let spec = merge::apply(value!({"selector": {"matchLabels": {"app": "web"}}}), spec);
        cluster
            .add(&kinds::POD_DISRUPTION_BUDGETS, value!({"metadata": {"namespace": "a", "name": "b"}, "spec": spec}));
        cluster
    }

    fn status(cluster: &FakeCluster) -> Value {
        cluster.get(&kinds::POD_DISRUPTION_BUDGETS, &Key::new("a", "b")).unwrap()["status"].clone()
    }

    #[test]
    fn disruptions_allowed_is_healthy_minus_desired_pods() {
        let check = |spec: Value, ready: usize, expect: [i64; 4]| {
            let mut cluster = new_cluster(spec.clone(), 3, ready);
            run_until_stable::<Disruption>(&mut cluster, |_| false);
            let reported_status = status(&cluster);
            let fields = ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"];
            assert_eq!(fields.map(|field| reported_status[field].as_int().unwrap()), expect, "{spec}");
            let reason = if expect[2] > 0 { "SufficientPods" } else { "InsufficientPods" };
            assert_eq!(reported_status["conditions"][0]["reason"], reason.into());
        };
        check(value!({"maxUnavailable": 1}), 3, [3, 2, 1, 3]);
        check(value!({"maxUnavailable": 1}), 2, [2, 2, 0, 3]);
        check(value!({"maxUnavailable": "50%"}), 3, [3, 1, 2, 3]);
        check(value!({"minAvailable": 2}), 3, [3, 2, 1, 3]);
        check(value!({"minAvailable": "80%"}), 3, [3, 3, 0, 3]);
        check(value!({"minAvailable": 5}), 3, [3, 5, 0, 3]);
    }

    #[test]
    fn granted_eviction_counts_until_deletion_or_timeout() {
        let mut cluster = new_cluster(value!({"maxUnavailable": 1}), 3, 3);
        let granted = value!({"status": {"disruptedPods": {"p0": (cluster.now.to_string())}}});
        cluster.change(&kinds::POD_DISRUPTION_BUDGETS, &Key::new("a", "b"), |budget| {
            *budget = merge::apply(budget.take(), granted);
        });
        let plan =
            controller::decide::<Disruption>(&cluster.cache::<Disruption>(), &(), &Key::new("a", "b"), cluster.now);
        plan.actions.iter().for_each(|action| cluster.execute(action).unwrap());
        assert_eq!(status(&cluster)["disruptionsAllowed"], 0.into());
        run_until_stable::<Disruption>(&mut cluster, |_| false);
        assert_eq!(status(&cluster)["disruptionsAllowed"], 1.into());
        assert!(
            cluster.log.iter().any(|line| line.ends_with("Pod was expected by PDB a/b to be deleted but it wasn't"))
        );
    }

    #[test]
    fn unknown_pod_count_allows_no_disruption() {
        let mut cluster = new_cluster(value!({"maxUnavailable": 1}), 1, 1);
        cluster.add(&kinds::PODS, pod("stray", Some("nobody"), true));
        run_until_stable::<Disruption>(&mut cluster, |_| false);
        assert_eq!(status(&cluster)["disruptionsAllowed"], 0.into());
        let condition = &status(&cluster)["conditions"][0];
        assert_eq!(
            (condition["reason"].as_str(), condition["message"].as_str()),
            (Some("SyncFailed"), Some("found no controllers for pod \"stray\""))
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

        #[test]
        fn properties_hold_in_generated_clusters(pods in 0..5usize, ready in 0..5usize, field in prop::sample::select(vec!["maxUnavailable", "minAvailable"]), number in 0..4i64, orphan in any::<bool>()) {
            let spec = Value::Object([(field, Value::from(number))].into_iter().collect());
            let mut cluster = new_cluster(spec, pods, ready);
            if orphan {
                cluster.add(&kinds::PODS, pod("own", None, true));
            }
            check_properties::<Disruption>(&cluster, |_| false);
        }
    }

    #[test]
    fn custom_workload_is_sized_by_its_scale_subresource() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let budget = value!({"maxUnavailable": "50%", "selector": {"matchLabels": {"app": "x"}}});
        let key = cluster
            .add(&kinds::POD_DISRUPTION_BUDGETS, value!({"metadata": {"namespace": "a", "name": "b"}, "spec": budget}));
        let owner =
            value!([{"apiVersion": "example.org/v1", "kind": "Octopus", "name": "o", "uid": "u", "controller": true}]);
        for name in ["p", "q"] {
            let metadata =
                value!({"namespace": "a", "name": name, "labels": {"app": "x"}, "ownerReferences": (owner.clone())});
            cluster.add(&kinds::PODS, value!({"metadata": metadata}));
        }
        let allowed = |cluster: &mut FakeCluster| {
            let cache = cluster.cache::<Disruption>();
            let queries = Disruption::queries(&cache, &key, cluster.now);
            drop(cache);
            assert_eq!(queries.len(), 1, "each scale is requested once");
            run_until_stable::<Disruption>(cluster, kubelet);
            let status = cluster.get(&kinds::POD_DISRUPTION_BUDGETS, &key).unwrap()["status"].clone();
            (queries[0].clone(), status["expectedPods"].as_int(), status["disruptionsAllowed"].as_int())
        };
        let (query, _, unknown) = allowed(&mut cluster);
        assert_eq!((query.to_string().as_str(), unknown), ("octopuss.example.org/v1/a/o/scale?-", Some(0)));
        cluster.set_response(&query, Ok(value!({"metadata": {"uid": "u"}, "spec": {"replicas": 3}})));
        let (_, expected, allowed) = allowed(&mut cluster);
        assert_eq!((expected, allowed), (Some(3), Some(1)));
    }
}
