//! Pod conditions.

use apimachinery::time::Time;
use apimachinery::{Object, Value};

use super::containers::Statuses;
use crate::plan::{Cause, Observation};
use crate::pod::{Container, Role};
use crate::resize;

/// Conditions of the kubelet that are removed when they no longer hold.
const PASSING: &[&str] = &["PodResizePending", "PodResizeInProgress"];

/// A condition without its transition time.
struct Condition {
    kind: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

/// Returns the kubelet's conditions, then those of other writers.
pub(super) fn all(observed: &Observation<'_>, phase: &str, statuses: &Statuses) -> Vec<Value> {
    let pod = observed.pod;
    let known = pod.0["status"]["conditions"].as_array().unwrap_or_default();
    let has_sandbox = observed
        .runtime
        .sandbox()
        .is_some_and(|sandbox| sandbox.ready && (sandbox.host_network || !sandbox.ips.is_empty()));
    let initialized = initialized(observed, phase, statuses);
    let containers = containers_ready(observed, phase, statuses);
    let ready = ready(observed, known, &containers);
    let plain = |kind, holds| Condition { kind, holds, reason: "", message: String::new() };
    let own =
        [plain("PodReadyToStartContainers", has_sandbox), initialized, ready, containers, plain("PodScheduled", true)];
    let generation = pod.meta().generation();
    let mut list: Vec<Value> = own
        .iter()
        // The scheduler has already set PodScheduled.
        .filter(|condition| condition.kind != "PodScheduled" || find(known, "PodScheduled").is_none())
        .map(|condition| to_value(condition, known, generation, observed.now))
        .collect();
    list.extend(disruption(observed, known));
    list.extend(restarting(observed, phase).map(|condition| to_value(&condition, known, 0, observed.now)));
    list.extend(resizing(observed).iter().map(|condition| to_value(condition, known, generation, observed.now)));
    let has = |list: &[Value], kind: Option<&str>| list.iter().any(|condition| condition.str_at(&["type"]) == kind);
    for other in known {
        let kind = other.str_at(&["type"]);
        if !has(&list, kind) && !kind.is_some_and(|kind| PASSING.contains(&kind)) {
            list.push(other.clone());
        }
    }
    list
}

fn to_value(condition: &Condition, known: &[Value], generation: i64, now: Time) -> Value {
    let status = if condition.holds { "True" } else { "False" };
    let before = find(known, condition.kind).filter(|before| before.str_at(&["status"]) == Some(status));
    let since = before.and_then(|before| before.str_at(&["lastTransitionTime"]));
    let mut object = Object::new();
    object.insert("type", condition.kind);
    object.insert("status", status);
    object.insert("lastProbeTime", Value::Null);
    object.insert("lastTransitionTime", since.map_or_else(|| now.to_string(), str::to_owned));
    if !condition.reason.is_empty() {
        object.insert("reason", condition.reason);
    }
    if !condition.message.is_empty() {
        object.insert("message", condition.message.as_str());
    }
    if generation > 0 {
        object.insert("observedGeneration", generation);
    }
    Value::Object(object)
}

fn initialized(observed: &Observation<'_>, phase: &str, statuses: &Statuses) -> Condition {
    let incomplete: Vec<&str> = observed
        .pod
        .init_containers()
        .filter(|container| {
            let status = statuses.init_of(container.name());
            let exit_code = status.at(&["state", "terminated", "exitCode"]).and_then(Value::as_int);
            match container.role {
                Role::Sidecar => status["started"].as_bool() != Some(true) && exit_code.is_none(),
                _ => exit_code != Some(0),
            }
        })
        .map(Container::name)
        .collect();
    let past = statuses.app.iter().any(|status| status["state"].get("waiting").is_none());
    let (kind, mut message) = ("Initialized", String::new());
    if incomplete.is_empty() || past {
        let reason = if phase == "Succeeded" { "PodCompleted" } else { "" };
        return Condition { kind, holds: true, reason, message };
    }
    message.push_str(&format!("containers with incomplete status: {}", listed(&incomplete)));
    Condition { kind, holds: false, reason: "ContainersNotInitialized", message }
}

fn containers_ready(observed: &Observation<'_>, phase: &str, statuses: &Statuses) -> Condition {
    let kind = "ContainersReady";
    match phase {
        "Succeeded" => return Condition { kind, holds: false, reason: "PodCompleted", message: String::new() },
        "Failed" => return Condition { kind, holds: false, reason: "PodFailed", message: String::new() },
        _ => {}
    }
    let sidecars = observed.pod.init_containers().filter(|container| container.role == Role::Sidecar);
    let names = sidecars.chain(observed.pod.app_containers());
    let unready: Vec<&str> = names
        .filter(|container| {
            let list = if container.role == Role::Sidecar { &statuses.init } else { &statuses.app };
            let status = list.iter().find(|status| status.str_at(&["name"]) == Some(container.name()));
            status.is_none_or(|status| status["ready"].as_bool() != Some(true))
        })
        .map(Container::name)
        .collect();
    if unready.is_empty() {
        return Condition { kind, holds: true, reason: "", message: String::new() };
    }
    let message = format!("containers with unready status: {}", listed(&unready));
    Condition { kind, holds: false, reason: "ContainersNotReady", message }
}

/// Combines container readiness with the pod's readiness gates.
fn ready(observed: &Observation<'_>, known: &[Value], containers: &Condition) -> Condition {
    let kind = "Ready";
    if !containers.holds {
        return Condition { kind, holds: false, reason: containers.reason, message: containers.message.clone() };
    }
    let gates = observed.pod.list("readinessGates").iter().filter_map(|gate| gate.str_at(&["conditionType"]));
    let missing: Vec<String> = gates
        .filter_map(|gate| match find(known, gate) {
            None => Some(format!("corresponding condition of pod readiness gate \"{gate}\" does not exist.")),
            Some(condition) if condition.str_at(&["status"]) == Some("True") => None,
            Some(_) => Some(format!("the status of pod readiness gate \"{gate}\" is not \"True\", but False")),
        })
        .collect();
    if missing.is_empty() {
        return Condition { kind, holds: true, reason: "", message: String::new() };
    }
    Condition { kind, holds: false, reason: "ReadinessGatesNotReady", message: missing.join(", ") }
}

/// Returns DisruptionTarget for a pod that the node itself terminates.
fn disruption(observed: &Observation<'_>, known: &[Value]) -> Option<Value> {
    let ending = observed.local.ending.as_ref()?;
    let Cause::Failed { reason, message } = &ending.cause else { return None };
    if !["Evicted", "Preempting", "Terminated"].contains(&reason.as_str()) {
        return None;
    }
    let condition =
        Condition { kind: "DisruptionTarget", holds: true, reason: "TerminationByKubelet", message: message.clone() };
    Some(to_value(&condition, known, observed.pod.meta().generation(), observed.now))
}

/// Returns the condition that reports whether RestartAllContainers is in progress, for pods that may use it.
fn restarting(observed: &Observation<'_>, phase: &str) -> Option<Condition> {
    let pod = observed.pod;
    let kind = "AllContainersRestarting";
    let under_way = observed.past_running().next().is_some() && observed.local.ending.is_none();
    let (holds, reason, message) = match phase {
        "Succeeded" => (false, "PodCompleted", ""),
        "Failed" => (false, "PodFailed", ""),
        _ if under_way => (true, "RestartAllContainersStarted", "container exited with restart policy rule"),
        _ => (false, "", ""),
    };
    let mut containers = pod.init_containers().chain(pod.app_containers());
    let condition = Condition { kind, holds, reason, message: message.to_owned() };
    containers.any(Container::may_restart_all).then_some(condition)
}

/// Returns PodResizePending and PodResizeInProgress.
fn resizing(observed: &Observation<'_>) -> Vec<Condition> {
    let Observation { pod, runtime, local, unenforced, .. } = *observed;
    let pending = local.resize.as_ref().map(|pending| Condition {
        kind: "PodResizePending",
        holds: true,
        reason: pending.reason,
        message: pending.message.clone(),
    });
    let changing = pod.init_containers().chain(pod.app_containers());
    let mut changing = changing.filter_map(|container| {
        let known = runtime.latest(container.name())?;
        resize::is_under_way(pod, container, known, unenforced).then(|| local.resizing.get(&known.id))
    });
    let under_way = changing.next().map(|first| {
        let problems = std::iter::once(first).chain(changing).flatten().filter_map(|one| one.problem.clone());
        let message = problems.collect::<Vec<_>>().join(", ");
        let reason = if message.is_empty() { "" } else { "Error" };
        Condition { kind: "PodResizeInProgress", holds: true, reason, message }
    });
    pending.into_iter().chain(under_way).collect()
}

fn find<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| condition.str_at(&["type"]) == Some(kind))
}

/// Formats names as Go prints a list.
fn listed(names: &[&str]) -> String {
    format!("[{}]", names.join(" "))
}
