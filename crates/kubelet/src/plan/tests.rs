//! Tests of pod planning in a compact notation: containers as `name:state`, actions as their `Display` text.

use apimachinery::time::Time;
use apimachinery::{Value, value};
use cgroups::Controllers;

use super::*;
use crate::runtime_status::{Exit, Sandbox};

const NOW: Time = Time::from_unix(1_000, 0);

fn pod(policy: &str, init: &[&str], sidecars: &[&str], apps: &[&str]) -> Value {
    let list = |names: &[&str], policy: Option<&str>| -> Vec<Value> {
        let one = |name: &&str| match policy {
            Some(policy) => value!({"name": (*name), "restartPolicy": policy}),
            None => value!({"name": (*name)}),
        };
        names.iter().map(one).collect()
    };
    let mut inits = list(init, None);
    inits.extend(list(sidecars, Some("Always")));
    value!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"restartPolicy": policy, "terminationGracePeriodSeconds": 30, "initContainers": inits,
            "containers": (list(apps, None))}})
}

/// Parses the sandbox, `ready` or `lost`, and containers: `name:run`, `name:made`, `name:lost`, or `name:0` for an exit
/// code.
fn runtime(text: &str) -> RuntimePod {
    let mut all = RuntimePod::default();
    for (n, word) in text.split_whitespace().enumerate() {
        let Some((name, state)) = word.split_once(':') else {
            let (ready, ips) = (word == "ready", vec!["10.0.0.1".to_owned()]);
            all.sandboxes.push(Sandbox { id: "s".into(), ready, ips, ..Sandbox::default() });
            continue;
        };
        let state = match state {
            "run" => State::Running { since: NOW },
            "made" => State::Created,
            "lost" => State::Unknown,
            code => State::Exited(Exit {
                code: code.parse().unwrap(),
                reason: String::new(),
                message: String::new(),
                started_at: None,
                finished_at: NOW,
            }),
        };
        all.containers.push(runtime_status::Container {
            id: format!("{name}{n}"),
            name: name.into(),
            sandbox: "s".into(),
            attempt: 0,
            hash: String::new(),
            state,
            created_at: n as i64,
            image: String::new(),
            image_ref: String::new(),
            log_path: String::new(),
            user: None,
            resources: None,
        });
    }
    all.sort();
    all
}

fn planned(pod: &Value, runtime: &RuntimePod, local: &Local) -> (PodPlan, String) {
    let plan = plan(&Observation { pod: Pod(pod), runtime, local, unenforced: Controllers::default(), now: NOW });
    let lines: Vec<String> = plan.actions.iter().map(ToString::to_string).collect();
    (plan, lines.join("; "))
}

#[test]
fn containers_follow_their_sandbox_and_their_init_containers() {
    let check = |pod: &Value, have: &str, expect: &str| {
        assert_eq!(planned(pod, &runtime(have), &Local::default()).1, expect, "{have}");
    };
    let plain = pod("Always", &[], &[], &["a", "b"]);
    check(&plain, "", "create sandbox 0");
    check(&plain, "ready", "start a 0; start b 0");
    check(&plain, "ready a:run", "start b 0");
    check(&plain, "ready a:run b:run", "");
    check(&plain, "ready a:0 b:1", "start a 1; start b 1");
    check(&plain, "ready a:made b:run", "start a 1");
    check(&plain, "ready a:1 a:1 a:run b:run", "remove a1");
    check(&plain, "lost a:run b:0", "kill a a1 within 30s");
    check(&plain, "lost a:0 b:0", "create sandbox 1");
    let never = pod("Never", &[], &[], &["a", "b"]);
    check(&never, "ready a:0 b:1", "");
    check(&never, "lost a:0 b:1", "");
    let on_failure = pod("OnFailure", &[], &[], &["a", "b"]);
    check(&on_failure, "ready a:0 b:1", "start b 1");
    check(&on_failure, "lost a:0 b:0", "");
    let init = pod("Always", &["i", "j"], &[], &["a"]);
    check(&init, "ready", "start i 0");
    check(&init, "ready i:run", "");
    check(&init, "ready i:0", "start j 0");
    check(&init, "ready i:0 j:1", "start j 1");
    check(&init, "ready i:0 j:0", "start a 0");
    check(&init, "ready a:0", "start a 1");
    let failed = pod("Never", &["i"], &[], &["a"]);
    check(&failed, "ready i:1", "");
    let sidecar = pod("Never", &["i"], &["s"], &["a"]);
    check(&sidecar, "ready i:0", "start s 0");
    check(&sidecar, "ready i:0 s:run", "start a 0");
    check(&sidecar, "ready i:0 s:0 a:run", "start s 1");
}

#[test]
fn completed_container_lost_by_the_runtime_does_not_run_again() {
    let check = |policy: &str, code: i64, have: &str, expect: &str| {
        let mut pod = pod(policy, &[], &[], &["a", "b"]);
        let known = value!({"containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": code}}}]});
        pod.as_object_mut().unwrap().insert("status", known);
        assert_eq!(planned(&pod, &runtime(have), &Local::default()).1, expect, "{policy} {code} {have}");
    };
    check("Never", 0, "ready b:run", "");
    check("Never", 1, "ready", "start b 0");
    check("Never", 1, "ready a:lost b:run", "");
    check("OnFailure", 0, "ready b:run", "");
    check("OnFailure", 1, "ready b:run", "start a 0");
    check("OnFailure", 1, "ready a:lost b:run", "start a 1");
    check("Always", 0, "ready b:run", "start a 0");
    check("Never", 0, "", "create sandbox 0");
    check("Never", 0, "lost b:0", "");
}

#[test]
fn failed_container_waits_for_its_backoff() {
    let pod = pod("Always", &[], &[], &["a"]);
    let mut local = Local::default();
    local.backoffs.tried("a", NOW, NOW);
    let (plan, lines) = planned(&pod, &runtime("ready a:1"), &local);
    assert_eq!((lines.as_str(), plan.wake_at), ("", Some(Time::from_unix(1_010, 0))));
    let retry_at = Time::from_unix(1_020, 0);
    let waiting = Waiting { reason: "ImagePullBackOff".into(), message: String::new(), retry_at };
    local.waiting.insert("a".into(), waiting);
    let (plan, lines) = planned(&pod, &runtime("ready"), &local);
    assert_eq!((lines.as_str(), plan.wake_at), ("", Some(retry_at)));
}

#[test]
fn container_failing_a_probe_is_killed_once_and_restarted() {
    let pod = pod("OnFailure", &[], &[], &["a"]);
    let mut local = Local::default();
    let failed = ProbeState { failed: Some("liveness"), ..ProbeState::default() };
    local.probes.insert("a1".into(), failed);
    let (plan, _) = planned(&pod, &runtime("ready a:run"), &local);
    let Action::Kill { message, restart: true, .. } = &plan.actions[0] else { panic!("{plan:?}") };
    assert_eq!(message, "Container a failed liveness probe, will be restarted");
    local.killing.insert("a1".into(), NOW);
    assert_eq!(planned(&pod, &runtime("ready a:run"), &local).1, "");
    local.forced.insert("a1".into());
    assert_eq!(planned(&pod, &runtime("ready a:0"), &local).1, "start a 1");
}

/// A pod whose container `a` requests RestartAllContainers with exit code 42.
fn taking_all() -> Value {
    let mut pod = pod("Never", &["i"], &["s"], &["a", "b"]);
    let containers = pod.get_mut("spec").unwrap().get_mut("containers").unwrap().as_array_mut().unwrap();
    let rule = value!({"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}});
    containers[0].as_object_mut().unwrap().insert("restartPolicyRules", value!([rule]));
    pod
}

#[test]
fn restart_all_containers_kills_all_and_restarts_from_init() {
    let now = NOW.since(Time::from_unix(0, 0)).nanos();
    let check = |have: &str, later: usize, expect: &str| {
        let mut runtime = runtime(have);
        // The `later` newest containers were created after the exit.
        for container in runtime.containers.iter_mut().take(later) {
            container.created_at += now;
        }
        assert_eq!(planned(&taking_all(), &runtime, &Local::default()).1, expect, "{have}");
    };
    check(
        "ready i:0 s:run a:42 b:run",
        0,
        "kill b b4 within 1s without its hook; kill s s2 within 1s without its hook",
    );
    check("ready i:0 s:137 a:42 b:run", 1, "kill b b4 within 1s without its hook");
    check("ready i:0 s:137 a:42 b:137", 0, "start i 1");
    check("ready i:0 s:137 a:42 b:0 i:0", 1, "start s 1");
    check("ready i:0 s:137 a:42 b:0 i:0 s:run", 2, "start a 1; start b 1");
    check("ready i:0 s:137 a:42 b:0 i:0 s:run a:run b:run", 4, "");
    check("ready i:0 s:137 a:42 b:0 i:0 s:run a:0 b:run", 4, "");
}

#[test]
fn termination_kills_containers_then_sidecars_then_stops_sandbox() {
    let pod = pod("Always", &[], &["s", "t"], &["a", "b"]);
    let ending = Ending { cause: Cause::Deleted, since: NOW, grace_seconds: 5 };
    let mut local = Local { ending: Some(ending.clone()), ..Local::default() };
    let check = |have: &str, local: &Local, expect: &str| {
        let (plan, lines) = planned(&pod, &runtime(have), local);
        assert_eq!(lines, expect, "{have}");
        plan
    };
    check("ready s:run t:run a:run b:run", &local, "kill b b4 within 5s; kill a a3 within 5s");
    check("ready s:run t:run a:0 b:0", &local, "kill t t2 within 5s");
    check("ready s:run t:0 a:0 b:0", &local, "kill s s1 within 5s");
    check("ready s:0 t:0 a:0 b:0", &local, "stop sandbox s");
    assert!(check("lost s:0 t:0 a:0 b:0", &local, "").done);
    assert!(check("", &local, "").done);
    local.killing.insert("a3".into(), Time::from_unix(1_005, 0));
    check("ready a:run", &Local { ending: local.ending.clone(), ..Local::default() }, "kill a a1 within 5s");
    local.killing.insert("a1".into(), Time::from_unix(1_005, 0));
    check("ready a:run", &local, "");
    local.ending = Some(Ending { grace_seconds: 1, ..ending });
    check("ready a:run", &local, "kill a a1 within 1s");
    local.starting = true;
    assert!(!check("", &local, "").done, "the plan waits for containers that are being created");
}

#[test]
fn pod_terminates_at_its_active_deadline() {
    let mut pod = pod("Always", &[], &[], &["a"]);
    let spec = pod.get_mut("spec").unwrap().as_object_mut().unwrap();
    spec.insert("activeDeadlineSeconds", 10);
    let start = |pod: &mut Value, at: i64| {
        let status = value!({"startTime": (Time::from_unix(at, 0).to_string())});
        pod.as_object_mut().unwrap().insert("status", status);
    };
    start(&mut pod, 995);
    let (plan, _) = planned(&pod, &runtime("ready a:run"), &Local::default());
    assert_eq!((plan.end, plan.wake_at), (None, Some(Time::from_unix(1_005, 0))));
    start(&mut pod, 990);
    let (plan, _) = planned(&pod, &runtime("ready a:run"), &Local::default());
    assert!(matches!(plan.end, Some(Cause::Failed { reason, .. }) if reason == "DeadlineExceeded"));
}
