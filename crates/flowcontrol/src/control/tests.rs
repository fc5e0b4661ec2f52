use apimachinery::{Value, value};
use proptest::prelude::*;

use super::*;
use crate::metrics::ByKind;
use crate::{Target, bootstrap};

fn fresh(total: u32) -> FlowControl {
    let objects = bootstrap::objects();
    let (levels, schemas): (Vec<Value>, Vec<Value>) =
        objects.into_iter().partition(|object| object["kind"] == "PriorityLevelConfiguration".into());
    let mut control = FlowControl::new(total, Moment::default());
    let result = control.reconfigure(&schemas, &levels, Moment::default());
    assert_eq!(result.ignored, []);
    assert!(result.conditions.iter().all(|condition| !condition.is_dangling));
    control
}

fn groups(names: &[&str]) -> Vec<Str> {
    names.iter().map(|name| Str::from(*name)).collect()
}

fn pods<'a>(user: &'a str, groups: &'a [Str], verb: &'a str) -> Digest<'a> {
    let target = Target::Resource { group: "", resource: "pods", subresource: "", namespace: "a" };
    Digest { user, groups, verb, target }
}

fn ticket(arrival: &Arrival) -> Ticket {
    match arrival.outcome {
        Outcome::Admitted(ticket) | Outcome::Queued(ticket) => ticket,
        Outcome::Rejected { .. } => panic!("{arrival:?}"),
    }
}

/// Returns a level with `shares` and one queue, and a schema that routes all requests to it.
fn custom(shares: i64, length: i64) -> (Vec<Value>, Vec<Value>) {
    let queuing = value!({"queues": 1, "handSize": 1, "queueLengthLimit": length});
    let limited = value!({
        "nominalConcurrencyShares": shares, "lendablePercent": 0,
        "limitResponse": {"type": "Queue", "queuing": queuing},
    });
    let level = value!({"metadata": {"name": "mine", "uid": "l1"}, "spec": {"type": "Limited", "limited": limited}});
    let rule = value!({
        "subjects": [{"kind": "Group", "group": {"name": "*"}}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}],
    });
    let spec = value!({"matchingPrecedence": 5, "priorityLevelConfiguration": {"name": "mine"}, "rules": [rule]});
    (vec![value!({"metadata": {"name": "all", "uid": "f1"}, "spec": spec})], vec![level])
}

#[test]
fn requests_are_classified_as_upstream() {
    let control = fresh(600);
    let check = |user: &str, names: &[&str], verb: &str, target: Target<'_>, schema: &str, level: &str| {
        let groups = groups(names);
        let classification = control.classify(&Digest { user, groups: &groups, verb, target });
        assert_eq!((&*classification.flow_schema, &*classification.priority_level), (schema, level), "{user} {verb}");
    };
    let lease = Target::Resource {
        group: "coordination.k8s.io",
        resource: "leases",
        subresource: "",
        namespace: "kube-system",
    };
    let node = Target::Resource { group: "", resource: "nodes", subresource: "status", namespace: "" };
    let all = "system:authenticated";
    check("admin", &["system:masters", all], "get", node, "exempt", "exempt");
    check("kubelet", &["system:nodes", all], "patch", node, "system-node-high", "node-high");
    check("kubelet", &["system:nodes", all], "get", Target::Path("/metrics"), "system-nodes", "system");
    check("system:kube-scheduler", &[all], "update", lease, "system-leader-election", "leader-election");
    check("system:kube-scheduler", &[all], "list", lease, "kube-scheduler", "workload-high");
    let account = ["system:serviceaccounts", all];
    check(
        "system:serviceaccount:kube-system:x",
        &account,
        "list",
        node,
        "kube-system-service-accounts",
        "workload-high",
    );
    check("system:serviceaccount:a:x", &account, "list", node, "service-accounts", "workload-low");
    check("ann", &[all], "get", Target::Path("/livez"), "probes", "exempt");
    check("ann", &[all], "get", Target::Path("/livez/ping"), "probes", "exempt");
    check("ann", &[all], "get", node, "global-default", "global-default");
    check("nobody", &[], "get", node, "catch-all", "catch-all");
}

#[test]
fn initial_seats_equal_upstreams() {
    let snapshot = fresh(600).snapshot();
    let seats: Vec<_> = snapshot
        .levels
        .iter()
        .map(|level| {
            (&*level.priority_level, level.nominal_limit_seats, level.lower_limit_seats, level.upper_limit_seats)
        })
        .collect();
    // There are 245 shares: 600 * 40 / 245 is 97.96.
    assert_eq!(
        seats,
        [
            ("catch-all", 13, 13, 613),
            ("exempt", 0, 0, 600),
            ("global-default", 49, 24, 649),
            ("leader-election", 25, 25, 625),
            ("node-high", 98, 73, 698),
            ("system", 74, 50, 674),
            ("workload-high", 98, 49, 698),
            ("workload-low", 245, 24, 845),
        ]
    );
}

#[test]
fn uids_are_returned_in_headers() {
    let (schemas, levels) = custom(100, 1);
    let mut control = FlowControl::new(10, Moment::default());
    control.reconfigure(&schemas, &levels, Moment::default());
    let arrival = control.arrive(&pods("ann", &[], "get"), &Estimate::One, Moment::default());
    assert_eq!(
        arrival.classification.headers(),
        [("X-Kubernetes-PF-FlowSchema-UID", "f1"), ("X-Kubernetes-PF-PriorityLevel-UID", "l1")]
    );
}

#[test]
fn full_queue_rejects_with_growing_retry_after() {
    let (schemas, levels) = custom(1000, 2);
    let mut control = FlowControl::new(1, Moment::default());
    control.reconfigure(&schemas, &levels, Moment::default());
    let digest = pods("ann", &[], "get");
    let first = control.arrive(&digest, &Estimate::One, Moment::default());
    assert!(matches!(first.outcome, Outcome::Admitted(_)));
    for _ in 0..2 {
        let next = control.arrive(&digest, &Estimate::One, Moment::default());
        assert!(matches!(next.outcome, Outcome::Queued(_)), "{next:?}");
    }
    let mut waits = Vec::new();
    for second in 0..8 {
        for _ in 0..9 {
            let arrival = control.arrive(&digest, &Estimate::One, Moment::from_seconds(second));
            let Outcome::Rejected { reason: Reason::QueueFull, retry_after_seconds } = arrival.outcome else {
                panic!("{arrival:?}")
            };
            waits.push(retry_after_seconds);
        }
    }
    assert_eq!((waits[0], *waits.last().unwrap()), (1, 8));
    let admitted = control.finish(ticket(&first), Moment::from_seconds(9));
    assert_eq!(admitted.len(), 1);
}

#[test]
fn timed_out_request_leaves_unless_it_executes() {
    let (schemas, levels) = custom(1000, 5);
    let mut control = FlowControl::new(1, Moment::default());
    control.reconfigure(&schemas, &levels, Moment::default());
    let digest = pods("ann", &[], "get");
    let running = ticket(&control.arrive(&digest, &Estimate::One, Moment::default()));
    let waiting = ticket(&control.arrive(&digest, &Estimate::One, Moment::default()));
    assert_eq!(control.time_out(running, Moment::from_seconds(1)), DequeueResult::Running);
    let left = DequeueResult::Removed { retry_after_seconds: 1, admitted: vec![] };
    assert_eq!(control.time_out(waiting, Moment::from_seconds(1)), left);
    assert_eq!(control.cancel(waiting, Moment::from_seconds(1)), DequeueResult::NotFound);
    assert_eq!(control.finish(waiting, Moment::from_seconds(1)), []);
    let wait =
        |arrived, deadline: Option<u64>| wait_until(Moment::from_seconds(arrived), deadline.map(Moment::from_seconds));
    assert_eq!(wait(4, Some(20)), Moment::from_seconds(8));
    assert_eq!(wait(0, Some(3600)), Moment::from_seconds(60));
    assert_eq!(wait(1, None), Moment::from_seconds(16));
}

#[test]
fn busy_level_borrows_seats_of_idle_levels() {
    let mut control = fresh(600);
    let all = groups(&["system:authenticated"]);
    let digest = pods("ann", &all, "get");
    let current = |control: &FlowControl| {
        let levels = control.snapshot().levels;
        levels.iter().find(|level| level.priority_level == "global-default").unwrap().current_limit_seats
    };
    let before = current(&control);
    let mut admitted = 0;
    for _ in 0..300 {
        let arrival = control.arrive(&digest, &Estimate::One, Moment::from_nanos(1));
        admitted += u32::from(matches!(arrival.outcome, Outcome::Admitted(_)));
    }
    assert_eq!(admitted, before);
    assert_eq!(control.wake_at(), Moment::from_seconds(10));
    let more = control.wake(Moment::from_seconds(10));
    assert!(current(&control) > before + 100, "{} {before}", current(&control));
    assert_eq!(more.len() as u32, (current(&control) - before).min(300 - before));
    let total: u32 = control.snapshot().levels.iter().map(|level| level.current_limit_seats).sum();
    assert!((595..=606).contains(&total), "{total}");
}

#[test]
fn removed_level_stays_until_it_is_idle() {
    let (schemas, levels) = custom(1000, 5);
    let mut control = FlowControl::new(1, Moment::default());
    control.reconfigure(&schemas, &levels, Moment::default());
    let digest = pods("ann", &[], "get");
    let running = ticket(&control.arrive(&digest, &Estimate::One, Moment::default()));
    let waiting = ticket(&control.arrive(&digest, &Estimate::One, Moment::default()));
    let result = control.reconfigure(&schemas, &[], Moment::default());
    assert!(result.conditions[0].is_dangling);
    assert_eq!(&*control.classify(&digest).flow_schema, "catch-all");
    let names = |control: &FlowControl| -> Vec<Str> {
        control.snapshot().levels.into_iter().map(|level| level.priority_level).collect()
    };
    assert_eq!(names(&control), ["catch-all", "exempt", "mine"]);
    assert_eq!(control.finish(running, Moment::from_seconds(1)), [waiting]);
    assert_eq!(control.finish(waiting, Moment::from_seconds(2)), []);
    assert_eq!(names(&control), ["catch-all", "exempt"]);
    control.reconfigure(&schemas, &levels, Moment::from_seconds(3));
    assert_eq!(control.finish(running, Moment::from_seconds(3)), [], "a ticket of a removed level is unknown");
}

#[test]
fn missing_mandatory_objects_are_substituted() {
    let mut control = FlowControl::new(10, Moment::default());
    let masters = groups(&["system:masters"]);
    assert_eq!(&*control.classify(&pods("root", &masters, "get")).priority_level, "exempt");
    let broken = value!({"metadata": {"name": "exempt"}, "spec": {"type": "Limited"}});
    let result = control.reconfigure(&[], &[broken], Moment::default());
    assert_eq!(result.ignored.len(), 1);
    assert_eq!(&*control.classify(&pods("root", &masters, "get")).priority_level, "exempt");
}

#[test]
fn unmatched_request_belongs_to_catch_all() {
    let (mut schemas, levels) = custom(10, 1);
    let spec = schemas[0].get_mut("spec").and_then(Value::as_object_mut).unwrap();
    spec.insert("matchingPrecedence", 10_000);
    spec.insert("rules", Value::Array(vec![]));
    apimachinery::meta::MetaMut::of(&mut schemas[0]).unwrap().set("name", "zzz");
    let mut control = FlowControl::new(10, Moment::default());
    control.reconfigure(&schemas, &levels, Moment::default());
    assert_eq!(&*control.classify(&pods("nobody", &[], "get")).flow_schema, "catch-all");
}

#[test]
fn dangling_condition_reports_a_missing_level() {
    let condition = |is_dangling| {
        let condition = Condition { flow_schema: "f".into(), priority_level: "l".into(), is_dangling };
        condition.to_value(apimachinery::time::Time::from_unix(0, 0)).to_string()
    };
    let found = r#"{"lastTransitionTime":"1970-01-01T00:00:00Z","message":"This FlowSchema references the PriorityLevelConfiguration object named \"l\" and it exists","reason":"Found","status":"False","type":"Dangling"}"#;
    assert_eq!(condition(false), found);
    assert!(
        condition(true).contains(r#"named \"l\" but there is no such object","reason":"NotFound","status":"True""#)
    );
}

#[test]
fn metrics_have_upstreams_names() {
    let mut control = fresh(600);
    let masters = groups(&["system:masters"]);
    let running = ticket(&control.arrive(&pods("root", &masters, "get"), &Estimate::One, Moment::default()));
    let samples = |control: &FlowControl| -> Vec<String> {
        let samples = control.snapshot().samples().into_iter().filter(|sample| sample.value != 0.0);
        let exempt = samples.filter(|sample| sample.labels.iter().any(|(_, value)| value == "exempt"));
        exempt.map(|sample| format!("{} {}", sample.name, sample.value)).collect()
    };
    let expect = [
        "apiserver_flowcontrol_upper_limit_seats 600",
        "apiserver_flowcontrol_current_limit_seats 1",
        "apiserver_flowcontrol_dispatched_requests_total 1",
        "apiserver_flowcontrol_current_executing_requests 1",
        "apiserver_flowcontrol_current_executing_seats 1",
    ];
    let have = samples(&control);
    for line in expect.iter().filter(|line| !line.contains("current_limit")) {
        assert!(have.contains(&(*line).to_owned()), "{line} {have:?}");
    }
    let snapshot = control.snapshot();
    assert_eq!((snapshot.executing, snapshot.waiting), (ByKind { read_only: 1, mutating: 0 }, ByKind::default()));
    control.finish(running, Moment::from_seconds(1));
    assert!(!samples(&control).iter().any(|line| line.contains("executing")));
}

proptest! {
    #[test]
    fn exempt_requests_never_wait(others in 0_usize..400, exempt in 1_usize..200) {
        let mut control = fresh(20);
        let (all, masters) = (groups(&["system:authenticated"]), groups(&["system:masters"]));
        for _ in 0..others {
            control.arrive(&pods("ann", &all, "get"), &Estimate::One, Moment::default());
        }
        for _ in 0..exempt {
            let arrival = control.arrive(&pods("root", &masters, "create"), &Estimate::One, Moment::default());
            prop_assert!(matches!(arrival.outcome, Outcome::Admitted(_)));
        }
    }

    #[test]
    fn equal_steps_produce_equal_results(users in prop::collection::vec(0_u8..5, 1..200)) {
        let run = || {
            let mut control = fresh(20);
            let all = groups(&["system:authenticated"]);
            let mut log = Vec::new();
            for (step, user) in users.iter().enumerate() {
                let now = Moment::from_nanos(step as u64 * 100_000_000);
                let name = user.to_string();
                let arrival = control.arrive(&pods(&name, &all, "get"), &Estimate::One, now);
                if let (Outcome::Admitted(ticket), 0) = (arrival.outcome, user % 2) {
                    log.push(format!("{:?}", control.finish(ticket, now)));
                }
                log.push(format!("{:?} {:?}", arrival.outcome, control.wake(now)));
            }
            log
        };
        prop_assert_eq!(run(), run());
    }
}
