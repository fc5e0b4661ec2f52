//! In-process controllers, and a minimal scheduler for tests without the real one.

use std::sync::Arc;

use api::view::{Node, Pod, PodSpec};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Key, Value, value};
use client::{Client, cache};
use component_base::events::Recorder;
use controller::object_graph::GlobalController;
use controller::{Action, Cache, Configs, Controller, Plan, kinds};
use controller_runtime::{Caches, Driver, Member};
use controllers::registry::{self, Row, Visitor};
use tokio::task::JoinSet;

/// Runs all controllers and the [`Binder`] until the returned value is dropped.
///
/// # Panics
/// If a controller reads a kind that does not exist, which its own tests rule out.
pub fn manage(client: &Client) -> JoinSet<()> {
    manage_with(client, Configs::default())
}

/// Like [`manage`], with configurations of controllers.
///
/// # Panics
/// As [`manage`].
pub fn manage_with(client: &Client, configs: Configs) -> JoinSet<()> {
    run(client, configs, vec![(Member::of::<Binder>(), 8)])
}

/// Runs all controllers without a scheduler until the returned value is dropped. The caller starts a scheduler.
///
/// # Panics
/// As [`manage`].
pub fn control(client: &Client) -> JoinSet<()> {
    run(client, Configs::default(), Vec::new())
}

fn run(client: &Client, configs: Configs, more: Vec<(Member, usize)>) -> JoinSet<()> {
    struct All(Vec<(Member, usize)>);
    impl Visitor for All {
        fn visit<C: Controller>(&mut self, row: &'static Row) {
            self.0.push((Member::of::<C>(), row.workers));
        }

        fn visit_sweeper<S: GlobalController>(&mut self, row: &'static Row) {
            self.0.push((Member::global::<S>(), row.workers));
        }
    }
    let mut all = All(more);
    registry::each(&mut all);
    let reads = all.0.iter().flat_map(|(member, _)| member.reads.iter().copied());
    let caches = Caches::configured(client, &cache::Settings::default(), reads, configs).expect("kinds that exist");
    let mut tasks = JoinSet::new();
    for (member, workers) in all.0 {
        let (events, sending) = Recorder::new(client.clone(), member.component);
        tasks.spawn(sending);
        let manager = "kube-controller-manager".to_owned();
        let driver = Driver { client: client.clone(), caches: Arc::clone(&caches), events, manager };
        tasks.spawn(member.run(Arc::new(driver), workers));
    }
    tasks
}

/// Binds each pod to the feasible node with the fewest pods.
pub struct Binder;

/// An unscheduled pod, and the nodes with their pod counts.
pub struct Observation<'a> {
    pod: &'a Value,
    nodes: Vec<(usize, &'a Value)>,
}

impl Controller for Binder {
    type Observed<'a> = Observation<'a>;
    const NAME: &'static str = "binder";
    const READS: &'static [&'static str] = &["pods", "nodes"];
    const WRITES: &'static [&'static str] = &["pods/binding"];

    fn affected_keys(_: &Cache, kind: &str, object: &Value, keys: &mut Vec<Key>) {
        if kind == "pods" && Pod(object).node_name().is_empty() {
            keys.push(Key::of(object));
        }
    }

    fn observe<'a>(cache: &'a Cache, key: &Key) -> Option<Observation<'a>> {
        let pod = cache.get("pods", key).filter(|found| Pod(found).node_name().is_empty() && Pod(found).is_active())?;
        let count = |node: &Value| cache.on_node("pods", Meta::of(node).name()).count();
        let nodes = cache.of("nodes").iter().map(|entry| (count(&entry.value), &entry.value)).collect();
        Some(Observation { pod, nodes })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        let spec = PodSpec(&observed.pod["spec"]);
        let fitting = observed.nodes.iter().filter(|(_, node)| spec.selects(Node(node)));
        let Some((_, node)) = fitting.min_by_key(|(count, node)| (*count, Meta::of(node).name())) else {
            return Plan::waiting("no node fits");
        };
        let meta = Meta::of(observed.pod);
        let body = value!({"apiVersion": "v1", "kind": "Binding",
            "metadata": {"namespace": (meta.namespace()), "name": (meta.name()), "uid": (meta.uid())},
            "target": {"apiVersion": "v1", "kind": "Node", "name": (Meta::of(node).name())}});
        Plan::of(Action::Post {
            resource: kinds::PODS.clone(),
            key: Key::of(observed.pod),
            subresource: "binding",
            body,
        })
    }
}
