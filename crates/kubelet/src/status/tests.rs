//! Tests of pod phases and conditions, which match upstream's.

use apimachinery::time::Time;
use apimachinery::{Value, value};
use cgroups::Controllers;

use super::*;
use crate::plan::{Ending, Local, Resizing, Waiting};
use crate::pod::Pod;
use crate::resize::Pending;
use crate::runtime_status::{Container, Exit, RuntimePod, Sandbox, State};

const NOW: Time = Time::from_unix(100, 0);

fn pod(policy: &str, init: bool) -> Value {
    let inits = if init { value!([{"name": "i"}]) } else { value!([]) };
    value!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1},
        "spec": {"restartPolicy": policy, "initContainers": inits, "containers": [{"name": "a", "image": "x"}]}})
}

fn runtime(text: &str) -> RuntimePod {
    let sandbox = Sandbox { id: "s".into(), ready: true, ips: vec!["10.0.0.9".into()], ..Sandbox::default() };
    let containers = text.split_whitespace().enumerate().map(|(n, word)| {
        let (name, state) = word.split_once(':').unwrap();
        let state = match state {
            "run" => State::Running { since: NOW },
            "made" => State::Created,
            code => State::Exited(Exit {
                code: code.parse().unwrap(),
                reason: String::new(),
                message: String::new(),
                started_at: Some(NOW),
                finished_at: NOW,
            }),
        };
        Container {
            id: n.to_string(),
            name: name.into(),
            sandbox: "s".into(),
            attempt: n as u32,
            hash: String::new(),
            state,
            created_at: n as i64,
            image: "x".into(),
            image_ref: "sha256:1".into(),
            log_path: String::new(),
            user: None,
            resources: None,
        }
    });
    let mut runtime = RuntimePod { sandboxes: vec![sandbox], containers: containers.collect() };
    runtime.sort();
    runtime
}

fn of(pod: &Value, runtime: &RuntimePod, local: &Local) -> Value {
    let facts = Facts { host_ips: vec!["192.0.2.1".into()], runtime_name: "knarr".into() };
    status(&Observation { pod: Pod(pod), runtime, local, unenforced: Controllers::default(), now: NOW }, &facts)
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a str {
    let list = status["conditions"].as_array().unwrap();
    list.iter().find(|one| one.str_at(&["type"]) == Some(kind)).unwrap().str_at(&["status"]).unwrap()
}

#[test]
fn phase_follows_the_containers_and_the_restart_policy() {
    let check = |policy: &str, init: bool, have: &str, expect: &str| {
        let status = of(&pod(policy, init), &runtime(have), &Local::default());
        assert_eq!(status.str_at(&["phase"]), Some(expect), "{policy} {have}");
    };
    check("Always", false, "", "Pending");
    check("Always", false, "a:run", "Running");
    check("Always", false, "a:0", "Running");
    check("OnFailure", false, "a:0", "Succeeded");
    check("OnFailure", false, "a:1", "Running");
    check("Never", false, "a:0", "Succeeded");
    check("Never", false, "a:1", "Failed");
    check("Always", true, "", "Pending");
    check("Always", true, "i:run", "Pending");
    check("Always", true, "i:1", "Pending");
    check("Never", true, "i:1", "Failed");
    check("Always", true, "i:0 a:run", "Running");
}

#[test]
fn terminal_phase_is_reported_after_all_containers_exited() {
    let put_out = || {
        let cause = Cause::Failed { reason: "Evicted".into(), message: "why".into() };
        Local { ending: Some(Ending { cause, since: NOW, grace_seconds: 5 }), ..Local::default() }
    };
    let ending = || {
        let ending = Ending { cause: Cause::Completed, since: NOW, grace_seconds: 5 };
        Local { ending: Some(ending), ..Local::default() }
    };
    let mut sidecar = pod("Never", true);
    let spec = sidecar.get_mut("spec").unwrap().as_object_mut().unwrap();
    spec.insert("initContainers", value!([{"name": "i", "restartPolicy": "Always"}]));
    let check = |pod: &Value, have: &str, local: &Local, phase: &str, reason: &str| {
        let status = of(pod, &runtime(have), local);
        let found = (status.str_at(&["phase"]), status.str_at(&["reason"]).unwrap_or_default());
        assert_eq!(found, (Some(phase), reason), "{have}");
        status
    };
    let plain = pod("Always", false);
    let status = check(&plain, "a:run", &put_out(), "Running", "");
    assert_eq!((condition(&status, "Ready"), condition(&status, "DisruptionTarget")), ("False", "True"));
    check(&plain, "a:137", &put_out(), "Failed", "Evicted");
    check(&plain, "", &Local { starting: true, ..put_out() }, "Pending", "");
    check(&plain, "", &put_out(), "Failed", "Evicted");
    check(&sidecar, "i:run a:0", &ending(), "Running", "");
    check(&sidecar, "i:0 a:0", &ending(), "Succeeded", "");
    let mut failed_pod = plain.clone();
    failed_pod.as_object_mut().unwrap().insert("status", value!({"phase": "Failed", "reason": "Evicted"}));
    check(&failed_pod, "a:137", &ending(), "Failed", "Evicted");
}

#[test]
fn container_killed_for_restart_is_waiting_not_terminated() {
    let check = |policy: &str, have: &str, forced: &str, phase: &str, state: &str, last: Option<i64>| {
        let local = Local { forced: [forced.to_owned()].into(), ..Local::default() };
        let status = of(&pod(policy, false), &runtime(have), &local);
        let container = &status["containerStatuses"][0];
        assert_eq!(status.str_at(&["phase"]), Some(phase), "{policy} {have}");
        assert!(container["state"].get(state).is_some(), "{policy} {have}: {container:?}");
        let code = container["lastState"].at(&["terminated", "exitCode"]).and_then(Value::as_int);
        assert_eq!(code, last, "{policy} {have}");
    };
    check("Never", "a:0", "0", "Running", "waiting", Some(0));
    check("OnFailure", "a:0", "0", "Running", "waiting", Some(0));
    check("Never", "a:0 a:run", "0", "Running", "running", Some(0));
    check("Never", "a:run", "0", "Running", "running", None);
    check("Never", "a:0", "", "Succeeded", "terminated", None);
}

#[test]
fn init_container_with_matching_restart_rule_has_not_failed() {
    let check = |own: Value, have: &str, expect: &str| {
        let mut pod = pod("Never", true);
        pod.get_mut("spec").unwrap().as_object_mut().unwrap().insert("initContainers", value!([(own.clone())]));
        let status = of(&pod, &runtime(have), &Local::default());
        assert_eq!(status.str_at(&["phase"]), Some(expect), "{own:?} {have}");
    };
    let rules = value!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
    check(value!({"name": "i"}), "i:1", "Failed");
    check(value!({"name": "i", "restartPolicy": "OnFailure"}), "i:1", "Pending");
    check(value!({"name": "i", "restartPolicy": "Never", "restartPolicyRules": (rules.clone())}), "i:42", "Pending");
    check(value!({"name": "i", "restartPolicy": "Never", "restartPolicyRules": rules}), "i:1", "Failed");
}

#[test]
fn resize_conditions_are_set_while_pending_and_in_progress() {
    let mut pod = pod("Always", false);
    let known =
        value!([{"type": "PodResizePending", "status": "True"}, {"type": "PodResizeInProgress", "status": "True"}]);
    pod.as_object_mut().unwrap().insert("status", value!({"conditions": known}));
    let mut runtime = runtime("a:run");
    let check = |runtime: &RuntimePod, local: &Local, expect: &[(&str, &str, &str)]| {
        let status = of(&pod, runtime, local);
        let found: Vec<_> = status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| ["type", "reason", "message"].map(|field| one.str_at(&[field]).unwrap_or_default()))
            .filter(|[kind, ..]| kind.starts_with("PodResize"))
            .map(|[kind, reason, message]| (kind, reason, message))
            .collect();
        assert_eq!(found, expect);
    };
    check(&runtime, &Local::default(), &[]);
    let pending = Pending { reason: "Deferred", message: "no room".into() };
    let mut local = Local { resize: Some(pending), ..Local::default() };
    check(&runtime, &local, &[("PodResizePending", "Deferred", "no room")]);
    local.resize = None;
    let old = node_api::cri::v1::LinuxContainerResources { cpu_shares: 512, cpu_quota: -1, ..Default::default() };
    runtime.containers[0].resources = Some(old);
    check(&runtime, &local, &[("PodResizeInProgress", "", "")]);
    let problem = Some("no".to_owned());
    local.resizing.insert("0".into(), Resizing { retry_at: NOW, problem });
    check(&runtime, &local, &[("PodResizeInProgress", "Error", "no")]);
}

#[test]
fn running_pod_has_its_conditions_addresses_and_containers() {
    let status = of(&pod("Always", false), &runtime("a:1 a:run"), &Local::default());
    for kind in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        assert_eq!(condition(&status, kind), "True", "{kind}");
    }
    assert_eq!(status["podIP"], Value::from("10.0.0.9"));
    assert_eq!(status["hostIPs"][0]["ip"], Value::from("192.0.2.1"));
    assert_eq!(status["qosClass"], Value::from("BestEffort"));
    let container = &status["containerStatuses"][0];
    assert_eq!(container["containerID"], Value::from("knarr://1"));
    assert_eq!(container["restartCount"], Value::Int(1));
    assert_eq!(container["lastState"]["terminated"]["exitCode"], Value::Int(1));
    assert_eq!((&container["ready"], &container["started"]), (&Value::Bool(true), &Value::Bool(true)));
}

#[test]
fn containers_that_have_not_started_wait_for_the_initialization_of_a_pod_with_init_containers() {
    let with_inits = value!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"restartPolicy": "Never",
        "initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}], "ephemeralContainers": [{"name": "e"}]}});
    let without = pod("Never", false);
    let check = |pod: &Value, sandbox: bool, have: &str, expect: &str| {
        let mut runtime = runtime(have);
        if !sandbox {
            runtime.sandboxes.clear();
        }
        let status = of(pod, &runtime, &Local::default());
        let describe = |status: &Value| {
            let (state, detail) = status["state"].as_object().unwrap().iter().next().unwrap();
            let reason = detail.str_at(&["reason"]).map(|reason| format!("={reason}")).unwrap_or_default();
            format!("{}:{state}{reason}", status.str_at(&["name"]).unwrap())
        };
        let fields = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
        let all = fields.iter().flat_map(|field| status[*field].as_array().unwrap_or_default());
        let all: Vec<String> = all.map(describe).collect();
        assert_eq!(all.join(" "), expect, "{have:?}");
    };
    let initializing = "waiting=PodInitializing";
    for sandbox in [false, true] {
        check(&without, sandbox, "", "a:waiting=ContainerCreating");
        let all = ["i", "j", "a", "e"].map(|name| format!("{name}:{initializing}")).join(" ");
        check(&with_inits, sandbox, "", &all);
    }
    check(&without, true, "a:made", "a:waiting=ContainerCreating");
    let rest = format!("a:{initializing} e:{initializing}");
    check(&with_inits, true, "i:made", &format!("i:{initializing} j:{initializing} {rest}"));
    check(&with_inits, true, "i:run", &format!("i:running j:{initializing} {rest}"));
    check(&with_inits, true, "i:0", &format!("i:terminated=Completed j:{initializing} {rest}"));
    check(&with_inits, true, "i:1", &format!("i:terminated=Error j:{initializing} {rest}"));
    check(&with_inits, true, "i:0 j:made", &format!("i:terminated=Completed j:{initializing} {rest}"));
    let done = "i:terminated=Completed j:terminated=Completed";
    check(&with_inits, true, "i:0 j:0 a:made", &format!("{done} {rest}"));
    check(&with_inits, true, "i:0 j:0 a:run", &format!("{done} a:running e:{initializing}"));
}

#[test]
fn waiting_container_has_reason_and_last_state() {
    let mut local = Local::default();
    local.backoffs.tried("a", NOW, NOW);
    let status = of(&pod("Always", false), &runtime("a:1"), &local);
    let container = &status["containerStatuses"][0];
    let message = "back-off 10s restarting failed container=a pod=p_n(u)";
    assert_eq!(container["state"], value!({"waiting": {"reason": "CrashLoopBackOff", "message": message}}));
    assert_eq!(container["lastState"]["terminated"]["reason"], Value::from("Error"));
    assert_eq!(condition(&status, "Ready"), "False");
    let waiting = Waiting { reason: "ErrImagePull".into(), message: "no".into(), retry_at: NOW };
    local.waiting.insert("a".into(), waiting);
    let status = of(&pod("Always", false), &runtime(""), &local);
    let expect = value!({"waiting": {"reason": "ErrImagePull", "message": "no"}});
    assert_eq!(status["containerStatuses"][0]["state"], expect);
    let status = of(&pod("Always", false), &runtime("a:128"), &local);
    assert_eq!(status["containerStatuses"][0]["state"], expect);
    let status = of(&pod("Never", false), &runtime("a:128"), &local);
    assert!(status["containerStatuses"][0]["state"].get("terminated").is_some(), "it does not try again");
}

#[test]
fn container_reported_as_terminated_stays_terminated() {
    let check = |policy: &str, code: i64, have: &str, expect: &str| {
        let pod = pod(policy, true);
        let terminated = |name: &str, code: i64| value!({"name": name, "state": {"terminated": {"exitCode": code}}});
        let reported =
            value!({"initContainerStatuses": [(terminated("i", 0))], "containerStatuses": [(terminated("a", code))]});
        let mut status = of(&pod, &runtime(have), &Local::default());
        keep_ends(&mut status, Pod(&pod), &reported);
        let of = |field: &str| status[field][0]["state"].as_object().unwrap().iter().next().unwrap().0.to_owned();
        assert_eq!(format!("{} {}", of("initContainerStatuses"), of("containerStatuses")), expect, "{policy} {have}");
    };
    check("Always", 0, "i:run", "running waiting");
    check("Always", 0, "i:0 a:run", "terminated running");
    check("OnFailure", 1, "i:run", "terminated waiting");
    check("OnFailure", 1, "i:0 a:run", "terminated running");
    check("OnFailure", 0, "i:0 a:run", "terminated terminated");
    check("Never", 1, "i:0 a:run", "terminated terminated");
}

#[test]
fn pod_restarting_all_containers_is_running_with_condition() {
    let rule = value!({"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}});
    let plain = pod("Never", false);
    let mut pod = pod("Never", true);
    let first = value!({"name": "a", "image": "x", "restartPolicy": "Never", "restartPolicyRules": [rule]});
    let containers = value!([first, {"name": "b", "image": "x"}]);
    pod.get_mut("spec").unwrap().as_object_mut().unwrap().insert("containers", containers);
    let check = |have: &str, phase: &str, holds: &str, reason: &str| {
        let status = of(&pod, &runtime(have), &Local::default());
        let list = status["conditions"].as_array().unwrap();
        let condition = list.iter().find(|one| one.str_at(&["type"]) == Some("AllContainersRestarting")).unwrap();
        let found = ["status", "reason"].map(|field| condition.str_at(&[field]).unwrap_or_default());
        assert_eq!((status.str_at(&["phase"]), found), (Some(phase), [holds, reason]), "{have}");
    };
    check("", "Pending", "False", "");
    check("i:0 a:run b:run", "Running", "False", "");
    check("i:0 a:42 b:run", "Running", "True", "RestartAllContainersStarted");
    check("i:0 a:42 b:137", "Running", "False", "");
    check("i:0 a:0 b:0", "Succeeded", "False", "PodCompleted");
    check("i:0 a:1 b:0", "Failed", "False", "PodFailed");
    let plain = of(&plain, &runtime("a:run"), &Local::default());
    let kinds = plain["conditions"].as_array().unwrap().iter().filter_map(|one| one.str_at(&["type"]));
    assert!(!kinds.into_iter().any(|kind| kind == "AllContainersRestarting"), "{plain:?}");
}

#[test]
fn foreign_conditions_and_transition_times_are_retained() {
    let mut pod = pod("Always", false);
    let long_ago = "1970-01-01T00:00:01Z";
    let known = value!({"startTime": long_ago, "nominatedNodeName": "x", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": long_ago},
        {"type": "example.com/gate", "status": "False", "lastTransitionTime": long_ago}]});
    pod.as_object_mut().unwrap().insert("status", known);
    let status = of(&pod, &runtime("a:run"), &Local::default());
    assert_eq!(status.str_at(&["startTime"]), Some(long_ago));
    assert_eq!(status.str_at(&["nominatedNodeName"]), Some("x"));
    let list = status["conditions"].as_array().unwrap();
    let ready = list.iter().find(|one| one.str_at(&["type"]) == Some("Ready")).unwrap();
    assert_eq!(ready.str_at(&["lastTransitionTime"]), Some(long_ago));
    assert_eq!(condition(&status, "example.com/gate"), "False");
    pod.get_mut("spec")
        .unwrap()
        .as_object_mut()
        .unwrap()
        .insert("readinessGates", value!([{"conditionType": "example.com/gate"}]));
    let status = of(&pod, &runtime("a:run"), &Local::default());
    assert_eq!((condition(&status, "Ready"), condition(&status, "ContainersReady")), ("False", "True"));
    pod.as_object_mut().unwrap().insert("status", status.clone());
    assert!(
        !has_changed(&status, &of(&pod, &runtime("a:run"), &Local::default())),
        "an unchanged resync reports no change"
    );
}

#[test]
fn unchanged_conditions_keep_their_reported_transition_time() {
    let (pod, local) = (pod("Always", false), Local::default());
    let reported = of(&pod, &runtime(""), &local);
    let facts = Facts::default();
    let later = Time::from_unix(200, 0);
    let runs = runtime("a:run");
    let observed =
        Observation { pod: Pod(&pod), runtime: &runs, local: &local, unenforced: Controllers::default(), now: later };
    let mut status = status(&observed, &facts);
    keep_times(&mut status, &reported);
    let since = |kind: &str| {
        let list = status["conditions"].as_array().unwrap();
        list.iter().find(|one| one.str_at(&["type"]) == Some(kind)).unwrap()["lastTransitionTime"].clone()
    };
    assert_eq!(since("Initialized"), Value::from(NOW.to_string()));
    assert_eq!(since("Ready"), Value::from(later.to_string()));
    assert_eq!(status["startTime"], Value::from(NOW.to_string()));
}

#[test]
fn evicted_pod_fails_with_reason() {
    let cause = Cause::Failed { reason: "Evicted".into(), message: "The node was low on resource: memory.".into() };
    let local = Local { ending: Some(Ending { cause, since: NOW, grace_seconds: 0 }), ..Local::default() };
    let status = of(&pod("Always", false), &runtime("a:137"), &local);
    assert_eq!((status.str_at(&["phase"]), status.str_at(&["reason"])), (Some("Failed"), Some("Evicted")));
    assert_eq!(condition(&status, "DisruptionTarget"), "True");
}
