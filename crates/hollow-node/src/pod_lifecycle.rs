//! Simulated pod lifecycle: the next status that a kubelet would report.

use std::net::Ipv4Addr;

use api::view::{Pod, has_condition};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Value, value};

/// Annotation for the behaviour of a pod's containers.
pub const ANNOTATION: &str = "hollow.knarr.dev/does";
/// Exit code of a killed process.
const KILLED: i64 = 137;

/// The behaviour of a pod's containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecycleStep {
    /// Running and ready.
    Run,
    /// Running and not ready.
    NotReady,
    /// Exits with this code.
    Exit(i64),
}

/// The next write for a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum PodWrite {
    /// Sets the status.
    Status(Value),
    /// Deletes the pod.
    Delete,
}

/// Returns the configured behaviour of a pod.
pub fn does(pod: &Value) -> LifecycleStep {
    let by_annotation = Meta::of(pod).annotation(ANNOTATION).and_then(read);
    let images = pod.list_at(&["spec", "containers"]);
    let by_image = || images.iter().find_map(|container| read(container.str_at(&["image"])?.strip_prefix("hollow/")?));
    let by_policy = || {
        if pod.str_at(&["spec", "restartPolicy"]).unwrap_or("Always") == "Always" {
            LifecycleStep::Run
        } else {
            LifecycleStep::Exit(0)
        }
    };
    by_annotation.or_else(by_image).unwrap_or_else(by_policy)
}

/// Returns the next write for a pod on a hollow node, if any.
pub fn step(pod: &Value, host: Ipv4Addr, address: Ipv4Addr, now: Time) -> Option<PodWrite> {
    let meta = Meta::of(pod);
    let (phase, is_terminal) = (Pod(pod).phase(), Pod(pod).is_terminal());
    if meta.is_deleting() {
        // The holder of a finalizer needs the final status.
        let has_finalizers = meta.finalizers().next().is_some();
        return Some(if has_finalizers && !is_terminal {
            PodWrite::Status(status(pod, LifecycleStep::Exit(KILLED), host, address, now))
        } else {
            PodWrite::Delete
        })
        .filter(|step| !(has_finalizers && *step == PodWrite::Delete));
    }
    let does = does(pod);
    let is_current = match does {
        LifecycleStep::Exit(_) => is_terminal,
        LifecycleStep::Run | LifecycleStep::NotReady => {
            is_terminal
                || (phase == "Running" && Pod(pod).is_ready() == (does == LifecycleStep::Run && gates_are_open(pod)))
        }
    };
    (!is_current).then(|| PodWrite::Status(status(pod, does, host, address, now)))
}

fn read(text: &str) -> Option<LifecycleStep> {
    let (word, code) = text.split_once(':').unwrap_or((text, ""));
    Some(match word {
        "run" => LifecycleStep::Run,
        "notready" => LifecycleStep::NotReady,
        "succeed" => LifecycleStep::Exit(0),
        "fail" => LifecycleStep::Exit(code.parse().ok().filter(|code| *code != 0).unwrap_or(1)),
        _ => return None,
    })
}

/// Whether all readiness gates are true.
fn gates_are_open(pod: &Value) -> bool {
    let gates = pod.list_at(&["spec", "readinessGates"]);
    gates.iter().all(|gate| gate.str_at(&["conditionType"]).is_none_or(|kind| has_condition(pod, kind)))
}

fn status(pod: &Value, does: LifecycleStep, host: Ipv4Addr, address: Ipv4Addr, now: Time) -> Value {
    let now = now.to_string();
    let on_host = pod.is_true_at(&["spec", "hostNetwork"]);
    let known = pod.str_at(&["status", "podIP"]).filter(|known| !known.is_empty()).map(str::to_owned);
    let address = known.unwrap_or_else(|| if on_host { host } else { address }.to_string());
    let containers_ready = does == LifecycleStep::Run;
    let (phase, reason) = match does {
        LifecycleStep::Run | LifecycleStep::NotReady => ("Running", None),
        LifecycleStep::Exit(0) => ("Succeeded", Some("PodCompleted")),
        LifecycleStep::Exit(_) => ("Failed", Some("PodFailed")),
    };
    let condition = |kind: &str, holds: bool, reason: Option<&str>| {
        let mut condition = value!({"type": kind, "status": (if holds { "True" } else { "False" }),
            "lastTransitionTime": (now.as_str())});
        if let (Some(reason), Some(condition)) = (reason.filter(|_| !holds), condition.as_object_mut()) {
            condition.insert("reason", reason);
        }
        condition
    };
    let unready = reason.or(Some("ContainersNotReady"));
    let started = pod.at(&["status", "startTime"]).cloned().unwrap_or_else(|| now.as_str().into());
    value!({
        "phase": phase, "hostIP": (host.to_string()), "hostIPs": [{"ip": (host.to_string())}],
        "podIP": (address.as_str()), "podIPs": [{"ip": (address.as_str())}], "startTime": started,
        "conditions": [
            (condition("PodReadyToStartContainers", phase == "Running", None)),
            (condition("Initialized", true, None)),
            (condition("ContainersReady", containers_ready, unready)),
            (condition("Ready", containers_ready && gates_are_open(pod), unready)),
        ],
        "containerStatuses": (containers(pod, "containers", does, &now)),
        "initContainerStatuses": (containers(pod, "initContainers", LifecycleStep::Exit(0), &now)),
    })
}

fn containers(pod: &Value, field: &str, does: LifecycleStep, now: &str) -> Vec<Value> {
    let containers = pod.list_at(&["spec", field]);
    let to_status = |container: &Value| {
        let text = |field| container.text_at(&[field]);
        let state = match does {
            LifecycleStep::Run | LifecycleStep::NotReady => value!({"running": {"startedAt": now}}),
            LifecycleStep::Exit(code) => {
                let reason = if code == 0 { "Completed" } else { "Error" };
                value!({"terminated": {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}})
            }
        };
        let running = matches!(does, LifecycleStep::Run | LifecycleStep::NotReady);
        let done = does == LifecycleStep::Exit(0) && field == "initContainers";
        value!({"name": (text("name")), "image": (text("image")), "imageID": "", "restartCount": 0, "state": state,
            "ready": (does == LifecycleStep::Run || done), "started": running})
    };
    containers.iter().map(to_status).collect()
}

#[cfg(test)]
mod tests {
    use apimachinery::patch::merge;

    use super::*;

    const NOW: Time = Time::from_unix(1_700_000_000, 0);
    const HOST: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
    const POD: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);

    fn pod(more: Value) -> Value {
        merge::apply(value!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}), more)
    }

    /// Returns all writes for a pod in order: `Running ready`, `Failed 3`, `gone`.
    fn writes(mut pod: Value) -> Vec<String> {
        let mut writes = Vec::new();
        while let Some(step) = step(&pod, HOST, POD, NOW) {
            let PodWrite::Status(status) = step else {
                writes.push("gone".to_owned());
                break;
            };
            pod = merge::apply(pod, value!({"status": status}));
            let state = &pod["status"]["containerStatuses"][0]["state"];
            let code = state.at(&["terminated", "exitCode"]).map(ToString::to_string);
            let more =
                code.unwrap_or_else(|| if Pod(&pod).is_ready() { "ready".to_owned() } else { "unready".to_owned() });
            writes.push(format!("{} {more}", pod["status"]["phase"].as_str().unwrap()));
            assert!(writes.len() < 5, "{writes:?}");
        }
        writes
    }

    #[test]
    fn pod_follows_its_configured_behaviour_and_status_is_written_once() {
        let check = |more: Value, expect: &[&str]| assert_eq!(writes(pod(more.clone())), expect, "{more}");
        let annotated = |does: &str| value!({"metadata": {"annotations": {"hollow.knarr.dev/does": does}}});
        check(value!({}), &["Running ready"]);
        check(value!({"spec": {"restartPolicy": "Never"}}), &["Succeeded 0"]);
        check(annotated("notready"), &["Running unready"]);
        check(annotated("fail"), &["Failed 1"]);
        check(annotated("fail:42"), &["Failed 42"]);
        check(annotated("succeed"), &["Succeeded 0"]);
        check(value!({"spec": {"containers": [{"name": "c", "image": "hollow/fail:3"}]}}), &["Failed 3"]);
        check(
            value!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "hollow/run"}]}}),
            &["Running ready"],
        );
        check(value!({"spec": {"readinessGates": [{"conditionType": "x"}]}}), &["Running unready"]);
        check(value!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), &["gone"]);
        let with_finalizer = value!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}});
        check(with_finalizer, &["Failed 137"]);
    }

    #[test]
    fn pod_keeps_its_ip_and_host_network_pods_use_the_node_ip() {
        let address = |more: Value| match step(&pod(more), HOST, POD, NOW) {
            Some(PodWrite::Status(status)) => status["podIP"].as_str().unwrap().to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(address(value!({})), "10.0.0.7");
        assert_eq!(address(value!({"spec": {"hostNetwork": true}})), "10.255.0.1");
        assert_eq!(address(value!({"status": {"podIP": "10.9.9.9"}})), "10.9.9.9");
    }
}
