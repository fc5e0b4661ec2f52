use apimachinery::{Value, value};

use super::*;
use crate::devices::Devices;
use crate::node::Node;

fn queue() -> Queue {
    Queue::new(Arc::new(vec![Profile::default()]), Options::default())
}

fn pod(name: &str, spec: Value) -> Arc<Pod> {
    let mut spec = spec;
    spec.as_object_mut().unwrap().insert("schedulerName", "default-scheduler");
    let object = value!({"metadata": {"name": name, "namespace": "ns", "labels": {"app": "web"}}, "spec": spec});
    Arc::new(Pod::new(&object).unwrap())
}

fn node(cpu: &str) -> Arc<Node> {
    let status = value!({"allocatable": {"cpu": cpu, "pods": "10"}});
    Arc::new(Node::new(&value!({"metadata": {"name": "n"}, "status": status})).unwrap())
}

fn wants(name: &str, cpu: &str) -> Arc<Pod> {
    pod(name, value!({"containers": [{"resources": {"requests": {"cpu": cpu}}}]}))
}

fn popped(queue: &mut Queue, now: Millis) -> Option<String> {
    queue.pop(now).map(|pod| pod.name.to_string())
}

#[test]
fn pods_are_ordered_by_priority_then_age() {
    let mut queue = queue();
    for (name, priority) in [("a", 0), ("b", 5), ("c", 5)] {
        queue.set(&pod(name, value!({"priority": priority})), &Devices::default(), 0);
    }
    let order: Vec<_> = (0..4).map(|_| popped(&mut queue, 0)).collect();
    assert_eq!(order, [Some("b".into()), Some("c".into()), Some("a".into()), None]);
    assert_eq!(queue.lengths().in_flight, 3);
}

#[test]
fn gated_pod_is_queued_after_gates_are_removed() {
    let mut queue = queue();
    let gated = pod("a", value!({"schedulingGates": [{"name": "x"}, {"name": "y"}]}));
    assert_eq!(
        queue.gate(&gated, &Devices::default()),
        Some(("SchedulingGates", "waiting for scheduling gates: [x y]".to_owned()))
    );
    queue.set(&gated, &Devices::default(), 0);
    assert_eq!((popped(&mut queue, 0), queue.lengths().gated), (None, 1));
    queue.set(&pod("a", value!({})), &Devices::default(), 0);
    assert_eq!(popped(&mut queue, 0), Some("a".into()));
}

#[test]
fn only_relevant_events_wake_a_pod() {
    let mut queue = queue();
    let big = wants("a", "4");
    queue.set(&big, &Devices::default(), 0);
    queue.pop(0);
    queue.failed(big.id(), &["NodeResourcesFit"], 0);
    assert_eq!(queue.lengths().unschedulable, 1);
    queue.notice(&Event::NodeAdded(node("2")), 10);
    queue.notice(&Event::PodAdded(wants("b", "1")), 10);
    assert_eq!(queue.lengths().unschedulable, 1, "neither pod preempts");
    queue.notice(&Event::NodeAdded(node("4")), 20_000);
    assert_eq!(queue.lengths().active, 1, "the back-off is over");
}

#[test]
fn events_during_a_cycle_are_not_missed() {
    let mut queue = queue();
    let (a, b) = (wants("a", "4"), wants("b", "4"));
    queue.set(&a, &Devices::default(), 0);
    queue.set(&b, &Devices::default(), 0);
    queue.pop(0);
    queue.notice(&Event::NodeAdded(node("4")), 0);
    queue.pop(0);
    queue.failed(b.id(), &["NodeResourcesFit"], 0);
    assert_eq!(queue.lengths().unschedulable, 1, "the decision about b saw the node");
    queue.failed(a.id(), &["NodeResourcesFit"], 0);
    assert_eq!((queue.lengths().unschedulable, queue.lengths().backoff), (1, 1));
    assert!(queue.events.is_empty(), "no pod in a cycle can have missed the events");
}

#[test]
fn back_off_doubles_up_to_its_maximum() {
    let mut queue = queue();
    let pod = wants("a", "4");
    queue.set(&pod, &Devices::default(), 0);
    let mut now = 0;
    let waits = (0..6).map(|_| {
        queue.pop(now).unwrap();
        queue.failed(pod.id(), &[], now);
        assert!(queue.pop(now).is_none(), "a failed pod is not retried immediately");
        let wake = queue.next_wake().unwrap();
        let wait = wake - now;
        now = wake;
        wait
    });
    assert_eq!(waits.collect::<Vec<_>>(), [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
}

#[test]
fn rejected_pod_skips_back_off_when_the_active_queue_is_empty() {
    let mut queue = queue();
    let pod = wants("a", "4");
    queue.set(&pod, &Devices::default(), 0);
    queue.pop(0);
    queue.notice(&Event::NodeAdded(node("4")), 0);
    queue.failed(pod.id(), &["NodeResourcesFit"], 0);
    queue.set(&wants("b", "1"), &Devices::default(), 0);
    assert_eq!(popped(&mut queue, 1), Some("b".into()));
    assert_eq!(popped(&mut queue, 1), Some("a".into()));
}

#[test]
fn unschedulable_pod_is_retried_after_five_minutes() {
    let mut queue = queue();
    let pod = wants("a", "4");
    queue.set(&pod, &Devices::default(), 0);
    queue.pop(0);
    queue.failed(pod.id(), &["NodeResourcesFit"], 0);
    assert_eq!(queue.next_wake(), Some(300_000));
    assert_eq!(popped(&mut queue, 299_999), None);
    assert_eq!(popped(&mut queue, 300_000), Some("a".into()));
}

#[test]
fn relevant_update_of_the_pod_wakes_it() {
    let mut queue = queue();
    let id = wants("a", "4").id();
    queue.set(&wants("a", "4"), &Devices::default(), 0);
    queue.pop(0);
    queue.failed(id, &["NodeResourcesFit"], 0);
    queue.set(&wants("a", "4"), &Devices::default(), 20_000);
    assert_eq!(queue.lengths().unschedulable, 1);
    queue.set(&wants("a", "2"), &Devices::default(), 20_000);
    assert_eq!(queue.lengths().active, 1);
}

#[test]
fn nomination_lasts_until_the_pod_is_removed() {
    let mut queue = queue();
    let pod = wants("a", "4");
    queue.set(&pod, &Devices::default(), 0);
    queue.nominate(pod.id(), Some("n"));
    assert_eq!(queue.nominated_node(pod.id()).map(Str::as_str), Some("n"));
    assert_eq!(queue.pop(0).unwrap().nominated_node, "n");
    queue.remove(pod.id());
    assert_eq!((queue.nominated_node(pod.id()), queue.lengths()), (None, Lengths::default()));
}

#[test]
fn cycle_with_dropped_events_is_retried() {
    let mut queue = queue();
    queue.set(&wants("a", "4"), &Devices::default(), 0);
    queue.pop(0);
    for _ in 0..=EVENTS_MAX {
        queue.notice(&Event::NodeAdded(node("1")), 0);
    }
    assert_eq!(queue.events.len(), EVENTS_MAX);
    queue.failed(wants("a", "4").id(), &["NodeResourcesFit"], 0);
    assert_eq!((queue.lengths().unschedulable, queue.events.len()), (0, 0));
}

#[test]
fn local_nomination_holds_until_the_watch_reports_another() {
    let mut queue = queue();
    let plain = wants("a", "4");
    let id = plain.id();
    queue.set(&plain, &Devices::default(), 0);
    queue.nominate(id, Some("n1"));
    queue.set(&plain, &Devices::default(), 1);
    assert_eq!(queue.nominated_node(id).map(Str::as_str), Some("n1"), "the server does not know yet");
    assert_eq!(queue.pop(1).unwrap().nominated_node, "n1");
    let nominated_pod = Arc::new(Pod { nominated_node: "n1".into(), ..(*plain).clone() });
    queue.set(&nominated_pod, &Devices::default(), 2);
    queue.set(&plain, &Devices::default(), 3);
    assert_eq!(queue.nominated_node(id), None, "the nomination was removed");
}

#[test]
fn recreated_pod_starts_without_back_off() {
    let mut queue = queue();
    let old = Arc::new(Pod { uid: "old".into(), ..(*wants("a", "4")).clone() });
    queue.set(&old, &Devices::default(), 0);
    queue.pop(0);
    queue.failed(old.id(), &["NodeResourcesFit"], 0);
    assert_eq!(popped(&mut queue, 1), None);
    queue.set(&Arc::new(Pod { uid: "new".into(), ..(*old).clone() }), &Devices::default(), 1);
    assert_eq!(popped(&mut queue, 1), Some("a".into()));
}

#[test]
fn nominated_pod_is_retried_when_a_pod_leaves_its_node() {
    let mut queue = queue();
    let waiting = wants("a", "4");
    queue.set(&waiting, &Devices::default(), 0);
    queue.pop(0);
    queue.nominate(waiting.id(), Some("n"));
    queue.failed(waiting.id(), &["NodeAffinity"], 0);
    let pod_removed =
        |node: &str| Event::PodRemoved(Arc::new(Pod { node_name: node.into(), ..(*wants("b", "1")).clone() }));
    for other in [pod_removed("m"), pod_removed("")] {
        queue.notice(&other, 20_000);
        assert_eq!(queue.lengths().unschedulable, 1, "{other:?}");
    }
    queue.notice(&pod_removed("n"), 20_000);
    assert_eq!(queue.lengths().active, 1);
}
