use apimachinery::{Value, value};

use super::*;
use crate::framework::{Cycle, Plugin, PreFilterResult};
use crate::profile::EnabledPlugin;

fn engine() -> Engine {
    Engine::new(vec![Profile::default()], Options::default())
}

fn node(engine: &mut Engine, name: &str, cpu: &str) {
    let labels = value!({"kubernetes.io/hostname": name});
    let object = value!({"metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}});
    engine.observe(Kind::Nodes, &Key::cluster(name), Some(&object), 0).unwrap();
}

fn pod(name: &str, uid: &str, cpu: &str, mut spec: Value) -> Value {
    let fields = spec.as_object_mut().unwrap();
    fields.insert("schedulerName", "default-scheduler");
    fields.insert("containers", value!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]));
    value!({"metadata": {"name": name, "namespace": "ns", "uid": uid, "labels": {"app": "web"}}, "spec": spec})
}

fn show(engine: &mut Engine, object: &Value, now: Millis) {
    engine.observe(Kind::Pods, &Key::of(object), Some(object), now).unwrap();
}

fn delete_pod(engine: &mut Engine, name: &str, now: Millis) {
    engine.observe(Kind::Pods, &Key::new("ns", name), None, now).unwrap();
}

/// Returns a step as one line of a transcript.
fn line(step: Option<Step>) -> String {
    match step {
        None => "nothing".to_owned(),
        Some(Step::Bind { pod, node, .. }) => format!("bind {} to {node}", pod.name),
        Some(Step::Skip { pod }) => format!("skip {}", pod.name),
        Some(Step::CallExtenders { pod, .. }) => format!("ask about {}", pod.name),
        Some(Step::Wait(wait)) => {
            let preemption = wait.preemption.map_or(String::new(), |it| {
                let names: Vec<_> = it.victims.iter().map(|victim| victim.name.to_string()).collect();
                format!(", evict {} from {}", names.join(" "), it.node)
            });
            format!("{} waits{preemption}", wait.pod.name)
        }
    }
}

fn bind(engine: &mut Engine, now: Millis) -> Arc<Pod> {
    match engine.step(now) {
        Some(Step::Bind { pod, .. }) => pod,
        other => panic!("{}", line(other)),
    }
}

#[test]
fn assumed_pod_occupies_resources_before_the_watch_reports_it() {
    let mut engine = engine();
    node(&mut engine, "n1", "4");
    for name in ["a", "b"] {
        show(&mut engine, &pod(name, name, "3", value!({})), 0);
    }
    let first = bind(&mut engine, 0);
    assert_eq!(line(engine.step(0)), "b waits");
    engine.bound(&first);
    show(&mut engine, &pod("a", "a", "3", value!({})), 1);
    assert_eq!(engine.snapshot().pods_len(), 1, "a stale update without nodeName is ignored");
    show(&mut engine, &pod("a", "a", "3", value!({"nodeName": "n1"})), 2);
    assert_eq!(line(engine.step(3)), "nothing");
    delete_pod(&mut engine, "a", 4);
    assert_eq!(line(engine.step(2_000)), "bind b to n1");
}

#[test]
fn failed_binding_releases_resources_and_retries_the_pod() {
    let mut engine = engine();
    node(&mut engine, "n1", "4");
    show(&mut engine, &pod("a", "a", "3", value!({})), 0);
    let first = bind(&mut engine, 0);
    let next_step = engine.unbound(&first, "binding rejected".to_owned(), 10);
    assert!(matches!(next_step, Some(Step::Wait(Wait { reason: Reason::SchedulerError, .. }))));
    assert_eq!(engine.snapshot().pods_len(), 0);
    assert_eq!(line(engine.step(11)), "nothing");
    assert_eq!(engine.next_wake(), Some(1_010));
    assert_eq!(line(engine.step(1_010)), "bind a to n1");
}

#[test]
fn pod_deleted_during_binding_is_forgotten() {
    let mut engine = engine();
    node(&mut engine, "n1", "4");
    show(&mut engine, &pod("a", "a", "3", value!({})), 0);
    let first = bind(&mut engine, 0);
    delete_pod(&mut engine, "a", 1);
    assert_eq!(engine.snapshot().pods_len(), 0);
    assert!(engine.unbound(&first, "not found".to_owned(), 2).is_none());
    assert_eq!(engine.lengths(), Lengths::default());
}

#[test]
fn recreated_pod_with_same_name_is_scheduled_separately() {
    let mut engine = engine();
    node(&mut engine, "n1", "4");
    show(&mut engine, &pod("a", "old", "3", value!({})), 0);
    let old = bind(&mut engine, 0);
    show(&mut engine, &pod("a", "new", "3", value!({})), 1);
    assert!(engine.unbound(&old, "conflict".to_owned(), 2).is_none());
    let new = bind(&mut engine, 2);
    assert_eq!(new.uid, "new");
}

#[test]
fn preemption_happens_once_and_clears_lower_nominations() {
    let mut engine = engine();
    node(&mut engine, "n1", "4");
    show(&mut engine, &pod("low", "low", "4", value!({"nodeName": "n1"})), 0);
    show(&mut engine, &pod("mid", "mid", "4", value!({"priority": 5})), 0);
    assert_eq!(line(engine.step(0)), "mid waits, evict low from n1");
    let mut low = pod("low", "low", "4", value!({"nodeName": "n1"}));
    let meta = low.get_mut("metadata").unwrap().as_object_mut().unwrap();
    meta.insert("deletionTimestamp", "2026-01-01T00:00:00Z");
    show(&mut engine, &low, 1);
    show(&mut engine, &pod("high", "high", "4", value!({"priority": 9})), 1);
    let Some(Step::Wait(wait)) = engine.step(1) else { panic!("high waits") };
    assert_eq!(wait.preemption.map(|it| it.outbid), Some(vec![Key::new("ns", "mid")]));
    delete_pod(&mut engine, "low", 2);
    assert_eq!(line(engine.step(1_500)), "bind high to n1");
}

#[test]
fn pods_of_other_schedulers_are_ignored() {
    let mut engine = engine();
    node(&mut engine, "n1", "4");
    let mut other = pod("a", "a", "1", value!({}));
    other.get_mut("spec").unwrap().as_object_mut().unwrap().insert("schedulerName", "other");
    show(&mut engine, &other, 0);
    assert_eq!(line(engine.step(0)), "nothing");
}

#[test]
fn terminating_pod_is_skipped() {
    let mut engine = engine();
    node(&mut engine, "n1", "4");
    show(&mut engine, &pod("a", "a", "1", value!({})), 0);
    let mut going = pod("a", "a", "1", value!({}));
    let meta = going.get_mut("metadata").unwrap().as_object_mut().unwrap();
    meta.insert("deletionTimestamp", "2026-01-01T00:00:00Z");
    show(&mut engine, &going, 1);
    assert_eq!(line(engine.step(1)), "skip a");
    show(&mut engine, &going, 2);
    assert_eq!(line(engine.step(2)), "nothing");
}

#[test]
fn new_node_wakes_only_pods_that_fit_it() {
    let mut engine = engine();
    node(&mut engine, "n1", "1");
    for (name, cpu) in [("small", "3"), ("large", "9")] {
        show(&mut engine, &pod(name, name, cpu, value!({})), 0);
    }
    assert_eq!(line(engine.step(0)), "small waits");
    assert_eq!(line(engine.step(0)), "large waits");
    node(&mut engine, "n2", "4");
    assert_eq!(line(engine.step(1)), "bind small to n2");
    assert_eq!(line(engine.step(10_000)), "nothing");
    assert_eq!(engine.lengths().unschedulable, 1);
}

#[test]
fn cached_objects_of_every_kind_are_listed() {
    let mut engine = engine();
    node(&mut engine, "n1", "4");
    show(&mut engine, &pod("a", "a", "1", value!({"nodeName": "n1"})), 0);
    show(&mut engine, &pod("b", "b", "1", value!({})), 0);
    let object = value!({"metadata": {"name": "x", "namespace": "ns", "labels": {"a": "b"}}, "spec": {"selector": {"matchLabels": {"a": "b"}}}});
    for kind in Kind::ALL.iter().filter(|kind| !matches!(kind, Kind::Pods | Kind::Nodes | Kind::CsiNodes)) {
        engine.observe(*kind, &Key::of(&object), Some(&object), 0).unwrap();
    }
    for kind in Kind::ALL.iter().filter(|kind| **kind != Kind::CsiNodes) {
        let known = engine.known(*kind);
        assert!(!known.is_empty(), "{kind:?}");
        for key in known {
            engine.observe(*kind, &key, None, 1).unwrap();
        }
        assert!(engine.known(*kind).is_empty(), "{kind:?}");
    }
}

#[test]
fn extenders_filter_and_score_before_binding() {
    let extender = Extender { filter_verb: "f".into(), prioritize_verb: "p".into(), ..Extender::default() };
    let mut engine = engine().with_extenders(Arc::new(vec![extender]));
    for name in ["n1", "n2", "n3"] {
        node(&mut engine, name, "4");
    }
    let mut run_cycle = |name: &str, response: ExtenderResults| {
        show(&mut engine, &pod(name, name, "1", value!({})), 0);
        let Some(Step::CallExtenders { pod, question: ExtenderRequest::Nodes(nodes), .. }) = engine.step(0) else {
            panic!("not asked")
        };
        assert_eq!(nodes.len(), 3);
        let step = engine.resume(pod, response, 0);
        let message = match &step {
            Some(Step::Wait(wait)) => wait.message.clone(),
            _ => String::new(),
        };
        (line(step), message)
    };
    let passed = |names: &[&str]| Some(names.iter().map(|name| Str::from(*name)).collect());
    let scores = [(Str::from("n3"), 1_000)].into();
    let best = ExtenderResults { passed: passed(&["n2", "n3"]), scores, ..ExtenderResults::default() };
    assert_eq!(run_cycle("a", best).0, "bind a to n3");
    let failed = [("n1", true), ("n2", true), ("n3", false)].map(|(node, it)| (node.into(), ("taken".to_owned(), it)));
    let none = ExtenderResults { passed: passed(&[]), failed: failed.into(), ..ExtenderResults::default() };
    let (outcome, message) = run_cycle("b", none);
    assert_eq!(outcome, "b waits");
    assert!(message.starts_with("0/3 nodes are available: 3 taken."), "{message}");
    let error = ExtenderResults { error: Some("failed".to_owned()), ..ExtenderResults::default() };
    assert_eq!(run_cycle("c", error), ("c waits".to_owned(), "failed".to_owned()));
}

#[test]
fn pod_in_a_cluster_without_nodes_waits_for_a_node() {
    let mut engine = engine();
    show(&mut engine, &pod("a", "a", "1", value!({})), 0);
    assert_eq!(line(engine.step(0)), "a waits");
    assert_eq!(line(engine.step(100_000)), "nothing");
    node(&mut engine, "n1", "4");
    assert_eq!(line(engine.step(100_000)), "bind a to n1");
}

#[test]
fn affinity_of_a_pod_nominated_by_an_earlier_scheduler_counts() {
    let mut engine = engine();
    let rack = value!({"metadata": {"name": "n1", "labels": {"rack": "a"}},
        "status": {"allocatable": {"cpu": "4", "pods": "10"}}});
    engine.observe(Kind::Nodes, &Key::cluster("n1"), Some(&rack), 0).unwrap();
    let apart = |from: &str, key: &str| {
        let term = value!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": from}}});
        value!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    show(&mut engine, &pod("first", "first", "1", apart("none", "zone")), 0);
    let mut waiting = pod("waiting", "waiting", "1", apart("web", "rack"));
    waiting.as_object_mut().unwrap().insert("status", value!({"nominatedNodeName": "n1"}));
    show(&mut engine, &waiting, 0);
    assert_eq!(line(engine.step(0)), "first waits");
    assert_eq!(line(engine.step(0)), "bind waiting to n1");
}

#[test]
fn assumed_pod_with_nomination_is_counted_once() {
    let mut engine = engine();
    node(&mut engine, "n1", "4");
    show(&mut engine, &pod("a", "a", "2", value!({})), 0);
    bind(&mut engine, 0);
    let mut announced = pod("a", "a", "2", value!({}));
    announced.as_object_mut().unwrap().insert("status", value!({"nominatedNodeName": "n1"}));
    show(&mut engine, &announced, 1);
    show(&mut engine, &pod("b", "b", "2", value!({})), 1);
    assert_eq!(line(engine.step(1)), "bind b to n1");
}

/// A plugin that panics on the pod `bad`.
struct PanickingPlugin;

impl Plugin for PanickingPlugin {
    fn name(&self) -> &'static str {
        "Mistaken"
    }

    fn prepare<'a>(&'a self, cycle: Cycle<'a>) -> PreFilterResult<'a> {
        assert_ne!(cycle.pod.name, "bad", "a mistake");
        PreFilterResult::Skip
    }
}

#[test]
fn pod_with_a_panicking_plugin_does_not_block_others() {
    let mut profile = Profile::default();
    profile.plugins.push(EnabledPlugin::fully(PanickingPlugin, 0));
    let mut engine = Engine::new(vec![profile], Options::default());
    node(&mut engine, "n1", "4");
    for name in ["bad", "good"] {
        show(&mut engine, &pod(name, name, "1", value!({})), 0);
    }
    let Some(Step::Wait(wait)) = engine.step(0) else { panic!("the malformed pod waits") };
    assert_eq!((wait.reason, wait.message.as_str()), (Reason::SchedulerError, BROKEN));
    assert_eq!(line(engine.step(0)), "bind good to n1");
    assert_eq!(line(engine.step(0)), "nothing");
    assert_eq!(line(engine.step(1_000)), "bad waits", "it is tried again after its back-off");
}
