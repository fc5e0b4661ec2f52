//! In-process controllers, and a minimal scheduler for tests without the real one.

use std::convert::Infallible;
use std::sync::Arc;

use api::resources::{NODES, PODS};
use api::view::{Node, Pod, PodSpec};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value, value};
use client::{Client, cache};
use component_base::events::Recorder;
use controller::object_graph::GlobalController;
use controller::{Action, Cache, Controller, Plan, Setup, Write, kinds};
use controller_runtime::{Caches, Driver, Member};
use controllers::registry::{self, Row, Setups, Visitor};
use tokio::task::JoinSet;

/// Runs all controllers and the [`Binder`] until the returned value is dropped.
///
/// # Panics
/// If a controller reads a kind that does not exist, which its own tests rule out.
pub fn manage(client: &Client) -> JoinSet<()> {
    manage_with(client, &Setups::default())
}

/// Like [`manage`], with configurations of controllers.
///
/// # Panics
/// As [`manage`].
pub fn manage_with(client: &Client, setups: &Setups) -> JoinSet<()> {
    run(client, setups, vec![(Member::of::<Binder>(Setup::new(())), 8)])
}

/// Runs all controllers without a scheduler until the returned value is dropped. The caller starts a scheduler.
///
/// # Panics
/// As [`manage`].
pub fn control(client: &Client) -> JoinSet<()> {
    run(client, &Setups::default(), Vec::new())
}

fn run(client: &Client, setups: &Setups, more: Vec<(Member, usize)>) -> JoinSet<()> {
    struct All(Vec<(Member, usize)>);
    impl Visitor for All {
        fn visit<C: Controller>(&mut self, row: &'static Row, setup: Setup<C>) {
            self.0.push((Member::of(setup), row.workers));
        }

        fn visit_sweeper<S: GlobalController>(&mut self, row: &'static Row) {
            self.0.push((Member::global::<S>(), row.workers));
        }
    }
    let mut all = All(more);
    registry::each(setups, &mut all);
    let reads = all.0.iter().flat_map(|(member, _)| member.reads.iter().copied());
    let caches = Caches::start(client, &cache::Settings::default(), reads).expect("kinds that exist");
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
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "binder";
    const READS: &'static [GroupResource] = &[PODS, NODES];
    const WRITES: &'static [Write] = &[(PODS, "binding")];

    fn affected_keys(_: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        if kind == PODS && Pod(object).node_name().is_empty() {
            keys.push(Key::of(object));
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let pod = cache.get(PODS, key).filter(|found| Pod(found).node_name().is_empty() && Pod(found).is_active())?;
        let count = |node: &Value| cache.on_node(PODS, Meta::of(node).name()).count();
        let nodes = cache.of(NODES).iter().map(|entry| (count(&entry.value), &entry.value)).collect();
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
