//! Execution of a global controller in the model of the API server, for tests.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::collection::Entry;
use apimachinery::{Key, Str};

use super::{
    Answers, Discovery, GlobalController, Item, Items, Kind, ObjectGraph, Query, QueryResponse, Step, item_index_by,
};
use crate::testing::FakeCluster;
use crate::{Plan, kinds};

/// Maximum rounds before a global controller counts as not converging.
const ROUNDS_MAX: usize = 200;
/// Maximum rounds of queries about one key before the test fails.
const QUESTIONS_MAX: usize = 10;

/// Returns the plan of a global controller for one key. The model responds to all queries.
///
/// # Panics
/// If the global controller does not stop sending queries, or decides differently on the same input.
pub fn step<S: GlobalController>(cluster: &FakeCluster, key: &Key) -> Plan {
    let everything = observe(cluster);
    let mut responses = Answers::new();
    for _ in 0..QUESTIONS_MAX {
        let step = S::decide(&everything, key, &responses, cluster.now);
        assert!(step == S::decide(&everything, key, &responses, cluster.now), "{}: two decisions on {key}", S::NAME);
        match step {
            Step::Execute(plan) => return plan,
            Step::Query(questions) => {
                for question in questions {
                    let response = respond(cluster, &everything.discovery, &question);
                    responses.insert(question, response);
                }
            }
        }
    }
    panic!("{}: {key} is asked about for ever", S::NAME)
}

/// Runs a global controller and its environment until neither acts. The action with index `skip` is omitted once, as if
/// the process had crashed before it.
///
/// # Panics
/// If the global controller does not converge.
pub fn run_until_stable<S: GlobalController>(
    cluster: &mut FakeCluster,
    environment: impl Fn(&mut FakeCluster) -> bool,
    skip: Option<usize>,
) {
    let mut done = 0;
    // Owner references may still refer to deleted objects.
    let mut seen_keys: BTreeSet<Key> = BTreeSet::new();
    for _ in 0..ROUNDS_MAX {
        let mut busy = false;
        let mut keys: BTreeSet<Key> = seen_keys.clone();
        let everything = observe(cluster);
        for (_, items) in &everything.items {
            for entry in items.iter() {
                let mut concerned = Vec::new();
                S::affected_keys(&entry.key, None, Some(&entry.value), &mut concerned);
                S::affected_keys(&entry.key, Some(&entry.value), None, &mut concerned);
                keys.extend(concerned);
            }
        }
        seen_keys.extend(keys.iter().cloned());
        for key in keys {
            for action in step::<S>(cluster, &key).actions {
                busy = true;
                if skip != Some(done) {
                    drop(cluster.execute(&action));
                }
                done += 1;
            }
        }
        if !environment(cluster) && !busy {
            return;
        }
    }
    panic!("{} does not settle in {ROUNDS_MAX} rounds:\n{}", S::NAME, cluster.log.join("\n"));
}

fn observe(cluster: &FakeCluster) -> ObjectGraph {
    let mut discovery = Discovery::default();
    let mut all = Vec::new();
    for resource in kinds::ALL {
        let resource = Arc::new((*resource).clone());
        let mut items = Items::new(item_index_by());
        for entry in cluster.of(&resource).iter() {
            let value = Item::of(&resource, &entry.value);
            let Entry { key, revision, observed_at, .. } = &**entry;
            items.insert(Entry { key: key.clone(), revision: *revision, observed_at: *observed_at, value });
        }
        all.push((Arc::clone(&resource), items));
        discovery.served.push((*resource).clone());
        let verbs = ["list", "watch", "delete", "deletecollection"].map(Str::from).to_vec();
        discovery.kinds.push(Kind { resource, verbs });
    }
    ObjectGraph::new(Arc::new(discovery), all, true)
}

fn respond(cluster: &FakeCluster, discovery: &Discovery, question: &Query) -> QueryResponse {
    match question {
        Query::Object { api_version, kind, key } => {
            let Some(resource) = discovery.resource(api_version, kind) else {
                return QueryResponse::Failed("no such kind".to_owned());
            };
            cluster.get(resource, key).map_or(QueryResponse::Absent, |object| QueryResponse::Object(object.clone()))
        }
        Query::Kinds => QueryResponse::Kinds(Arc::new(discovery.clone())),
        Query::Contents { kind, namespace } => {
            let Some(found) = discovery.kind(kind) else { return QueryResponse::Failed("no such kind".to_owned()) };
            let objects = cluster.of(kind);
            let items = objects
                .in_namespace(namespace)
                .map(|entry| (entry.key.clone(), Item::of(&found.resource, &entry.value)));
            QueryResponse::Items(items.collect())
        }
    }
}
