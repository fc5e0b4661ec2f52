//! Namespace controller: deletes the contents of a terminating namespace, pods first, then finalizes it.

use std::collections::BTreeMap;

use api::resources::{NAMESPACES, PODS};
use apimachinery::meta::Meta;
use apimachinery::time::{Duration, Time};
use apimachinery::{Key, Str, Value, value};
use controller::object_graph::{
    Answers, Discovery, GlobalController, Item, Kind, ObjectGraph, Query, QueryResponse, Step,
};
use controller::{Action, Plan, Preconditions, kinds};

use crate::condition;

/// The finalizer in `spec.finalizers` that this controller removes.
const FINALIZER: &str = "kubernetes";
/// Recheck interval, for kinds that cannot be watched.
const AGAIN: Duration = Duration::from_seconds(5);

/// Namespace controller. Its keys are namespaces.
pub struct Namespace;

/// The contents of a namespace.
#[derive(Default)]
struct Contents<'a> {
    /// The items of each kind that has any.
    items: Vec<(&'a Kind, &'a [(Key, Item)])>,
    /// Errors of failed list requests.
    failures: Vec<String>,
}

impl GlobalController for Namespace {
    const NAME: &'static str = "namespace-controller";

    fn affected_keys(of: &Key, _: Option<&Item>, new: Option<&Item>, keys: &mut Vec<Key>) {
        match new {
            Some(new) if is_namespace(new) && new.deleting => keys.push(of.clone()),
            // The deleted object may have been the last one of its namespace.
            None if !of.namespace.is_empty() => keys.push(Key::cluster(of.namespace.clone())),
            Some(_) | None => {}
        }
    }

    fn decide(everything: &ObjectGraph, key: &Key, responses: &Answers, now: Time) -> Step {
        if !everything.get(&kinds::NAMESPACES, key).is_some_and(|namespace| namespace.value.deleting) {
            return Step::Execute(Plan::default());
        }
        let itself = Query::Object { api_version: "v1".into(), kind: "Namespace".into(), key: key.clone() };
        let namespace = match responses.get(&itself) {
            None => return Step::Query(vec![itself]),
            Some(QueryResponse::Object(namespace)) => namespace,
            Some(QueryResponse::Absent) => return Step::Execute(Plan::default()),
            Some(_) => return Step::Execute(Plan::waiting("failed to read the namespace")),
        };
        if !Meta::of(namespace).is_deleting() || !finalizers(namespace).any(|finalizer| finalizer == FINALIZER) {
            return Step::Execute(Plan::default());
        }
        // A kind may have been added just now and already have objects, so discovery is queried again.
        let discovery = match responses.get(&Query::Kinds) {
            None => return Step::Query(vec![Query::Kinds]),
            Some(QueryResponse::Kinds(discovery)) => discovery,
            Some(_) => return Step::Execute(Plan::waiting("discovery failed")),
        };
        // Pods are deleted first, so that the objects they need exist for as long as they run.
        let (pods, others): (Vec<&Kind>, Vec<&Kind>) = discovery
            .kinds
            .iter()
            .filter(|kind| kind.is_namespaced() && kind.can("list") && kind.can("delete"))
            .partition(|kind| kind.resource.is(PODS));
        let mut contents = Contents::default();
        for kinds in [pods, others] {
            let unanswered = contents.add_responses(&kinds, &key.name, responses);
            if !unanswered.is_empty() {
                return Step::Query(unanswered);
            }
            if !contents.items.is_empty() {
                break;
            }
        }
        Step::Execute(plan(discovery, namespace, &contents, now))
    }
}

impl<'a> Contents<'a> {
    /// Adds the responses for `kinds` and returns the queries that have no response yet.
    fn add_responses(&mut self, kinds: &[&'a Kind], namespace: &Str, responses: &'a Answers) -> Vec<Query> {
        let mut unanswered = Vec::new();
        for kind in kinds {
            let question = Query::Contents { kind: kind.resource.to_string().into(), namespace: namespace.clone() };
            match responses.get(&question) {
                None => unanswered.push(question),
                Some(QueryResponse::Items(items)) if !items.is_empty() => self.items.push((kind, items)),
                Some(
                    QueryResponse::Items(_)
                    | QueryResponse::Absent
                    | QueryResponse::Object(_)
                    | QueryResponse::Kinds(_),
                ) => {}
                Some(QueryResponse::Failed(message)) => self.failures.push(message.clone()),
            }
        }
        unanswered
    }
}

fn plan(discovery: &Discovery, namespace: &Value, contents: &Contents<'_>, now: Time) -> Plan {
    let mut plan = Plan::default();
    for (kind, items) in &contents.items {
        if items.iter().all(|(_, item)| item.deleting) {
            continue;
        }
        let resource = (*kind.resource).clone();
        if kind.can("deletecollection") {
            plan.push(Action::DeleteAll { resource, namespace: Meta::of(namespace).name().into() });
        } else {
            plan.actions.extend(items.iter().filter(|(_, item)| !item.deleting).map(|(key, item)| Action::Delete {
                resource: resource.clone(),
                key: key.clone(),
                only_if: Preconditions { uid: Some(item.uid.clone()), resource_version: None },
                propagation: None,
                grace_seconds: None,
                result_event: None,
            }));
        }
    }
    let stale = &discovery.stale;
    if contents.items.is_empty() && contents.failures.is_empty() && stale.is_empty() {
        plan.push(finalized(namespace));
        return plan;
    }
    // Objects whose deletion is only now requested are not reported as remaining.
    if plan.actions.is_empty() {
        plan.actions.extend(status(namespace, contents, stale, now));
    }
    plan.wake(now.plus(AGAIN));
    plan.waiting = Some("the namespace still has contents".to_owned());
    plan
}

fn finalizers(namespace: &Value) -> impl Iterator<Item = &str> {
    let listed = namespace.list_at(&["spec", "finalizers"]);
    listed.iter().filter_map(Value::as_str)
}

fn finalized(namespace: &Value) -> Action {
    let left: Vec<Value> = finalizers(namespace).filter(|have| *have != FINALIZER).map(Value::from).collect();
    let mut object = namespace.clone();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("finalizers", left);
    }
    Action::UpdateSubresource { resource: kinds::NAMESPACES.clone(), subresource: "finalize", object }
}

/// Returns the status update with the deletion conditions, if they changed.
fn status(namespace: &Value, contents: &Contents<'_>, stale: &[String], now: Time) -> Option<Action> {
    let mut conditions = namespace.list_at(&["status", "conditions"]).to_vec();
    for (kind, found) in findings(contents, stale) {
        let (status, reason, message) = match &found {
            Finding::Healthy(reason, message) => ("False", *reason, (*message).to_owned()),
            Finding::Unhealthy(reason, message) => ("True", *reason, message.clone()),
        };
        if let Some(have) = condition::in_list(&conditions, kind)
            && (have.str_at(&["status"]), have.str_at(&["message"])) == (Some(status), Some(message.as_str()))
        {
            continue;
        }
        let condition = value!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": (now.to_string())});
        condition::remove(&mut conditions, kind);
        conditions.push(condition);
    }
    let mut object = namespace.clone();
    let status = object.as_object_mut()?.get_or_insert_with("status", Value::object).as_object_mut()?;
    status.insert("phase", "Terminating");
    status.insert("conditions", conditions);
    (object != *namespace).then(|| Action::UpdateStatus { resource: kinds::NAMESPACES.clone(), object })
}

enum Finding {
    Healthy(&'static str, &'static str),
    Unhealthy(&'static str, String),
}

/// Returns upstream's five conditions of a terminating namespace, with upstream's messages.
fn findings(contents: &Contents<'_>, stale: &[String]) -> [(&'static str, Finding); 5] {
    let mut remaining: Vec<String> = contents
        .items
        .iter()
        .map(|(kind, items)| {
            let resource = &kind.resource;
            format!("{}.{} has {} resource instances", resource.plural, resource.group, items.len())
        })
        .collect();
    remaining.sort();
    let mut holding: BTreeMap<&str, usize> = BTreeMap::new();
    for finalizer in contents.items.iter().flat_map(|(_, items)| *items).flat_map(|(_, item)| &item.finalizers) {
        *holding.entry(finalizer).or_default() += 1;
    }
    let holding: Vec<String> =
        holding.iter().map(|(name, count)| format!("{name} in {count} resource instances")).collect();
    let ill = |list: &[String], well: Finding, reason, message: String| {
        if list.is_empty() { well } else { Finding::Unhealthy(reason, message) }
    };
    let discovered = ill(
        stale,
        Finding::Healthy("ResourcesDiscovered", "All resources successfully discovered"),
        "DiscoveryFailed",
        format!("Discovery failed for some groups, {} failing: {}", stale.len(), stale.join(", ")),
    );
    let failures = &contents.failures;
    let deleted = ill(
        failures,
        Finding::Healthy("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        "ContentDeletionFailed",
        format!("Failed to delete all resource types, {} remaining: {}", failures.len(), failures.join(", ")),
    );
    let removed = ill(
        &remaining,
        Finding::Healthy("ContentRemoved", "All content successfully removed"),
        "SomeResourcesRemain",
        format!("Some resources are remaining: {}", remaining.join(", ")),
    );
    let freed = ill(
        &holding,
        Finding::Healthy("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        "SomeFinalizersRemain",
        format!("Some content in the namespace has finalizers remaining: {}", holding.join(", ")),
    );
    [
        ("NamespaceDeletionDiscoveryFailure", discovered),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            Finding::Healthy("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        ("NamespaceDeletionContentFailure", deleted),
        ("NamespaceContentRemaining", removed),
        ("NamespaceFinalizersRemaining", freed),
    ]
}

fn is_namespace(item: &Item) -> bool {
    item.resource.is(NAMESPACES)
}

#[cfg(test)]
mod tests {
    use api::resources::CONFIG_MAPS;
    use apimachinery::meta::MetaMut;
    use controller::object_graph::{run_until_stable, step};
    use controller::testing::{FakeCluster, kubelet};

    use super::*;

    fn new_cluster() -> FakeCluster {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        cluster.add(&kinds::NAMESPACES, value!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}}));
        for (resource, name) in [(&kinds::PODS, "pod"), (&kinds::CONFIG_MAPS, "map"), (&kinds::SECRETS, "secret")] {
            cluster.add(resource, value!({"metadata": {"namespace": "a", "name": name}}));
        }
        cluster.add(&kinds::CONFIG_MAPS, value!({"metadata": {"namespace": "b", "name": "map"}}));
        kubelet(&mut cluster);
        cluster
    }

    fn delete(cluster: &mut FakeCluster) {
        cluster.delete(&kinds::NAMESPACES, &Key::cluster("a"), None, None);
    }

    #[test]
    fn active_namespace_is_not_changed() {
        assert!(step::<Namespace>(&new_cluster(), &Key::cluster("a")).is_done());
    }

    #[test]
    fn pods_are_deleted_before_other_contents_and_the_namespace() {
        let mut cluster = new_cluster();
        delete(&mut cluster);
        run_until_stable::<Namespace>(&mut cluster, kubelet, None);
        let expect = [
            "delete all pods in a",
            "delete all configmaps in a",
            "delete all secrets in a",
            "update namespaces/finalize a",
        ];
        assert_eq!(cluster.log, expect);
        assert!(cluster.get(&kinds::NAMESPACES, &Key::cluster("a")).is_none());
        assert_eq!(cluster.of(CONFIG_MAPS).len(), 1, "another namespace is another matter");
    }

    #[test]
    fn remaining_contents_are_reported_and_block_finalization() {
        let mut cluster = new_cluster();
        cluster.change(&kinds::CONFIG_MAPS, &Key::new("a", "map"), |map| {
            MetaMut::of(map).unwrap().add_finalizer("example.com/x");
        });
        delete(&mut cluster);
        run_until_stable::<Namespace>(&mut cluster, kubelet, None);
        let namespace = cluster.get(&kinds::NAMESPACES, &Key::cluster("a")).unwrap();
        let check = |kind: &str, status: &str, message: &str| {
            let condition = condition::find(namespace, kind).unwrap();
            assert_eq!((condition["status"].as_str(), condition["message"].as_str()), (Some(status), Some(message)));
        };
        check(
            "NamespaceContentRemaining",
            "True",
            "Some resources are remaining: configmaps. has 1 resource instances",
        );
        check(
            "NamespaceFinalizersRemaining",
            "True",
            "Some content in the namespace has finalizers remaining: example.com/x in 1 resource instances",
        );
        check(
            "NamespaceDeletionContentFailure",
            "False",
            "All content successfully deleted, may be waiting on finalization",
        );
        assert_eq!(namespace["status"]["phase"], "Terminating".into());
        cluster.change(&kinds::CONFIG_MAPS, &Key::new("a", "map"), |map| {
            MetaMut::of(map).unwrap().remove_finalizer("example.com/x");
        });
        run_until_stable::<Namespace>(&mut cluster, kubelet, None);
        assert!(cluster.get(&kinds::NAMESPACES, &Key::cluster("a")).is_none());
    }

    #[test]
    fn namespace_is_finalized_despite_interrupted_plans() {
        for skip in 0..6 {
            let mut cluster = new_cluster();
            delete(&mut cluster);
            run_until_stable::<Namespace>(&mut cluster, kubelet, Some(skip));
            assert!(cluster.get(&kinds::NAMESPACES, &Key::cluster("a")).is_none(), "without action {skip}");
        }
    }
}
