//! Table columns of pods, as printed by `kubectl get pods`.

use apimachinery::Value;
use apimachinery::table::{Cell, Column, age};
use apimachinery::time::Time;

use crate::kind::{age_column, name_column};
use crate::view::{Pod, has_condition};

pub(super) fn all() -> Vec<Column> {
    let column = |name: &str, description: &str, cell| Column::new(name, "string", description, Cell::Function(cell));
    let wide = |name: &str, description: &str, cell| Column { priority: 1, ..column(name, description, cell) };
    vec![
        name_column(),
        column("Ready", "Containers that are ready, of all.", |pod, now| Summary::of(pod, now).ready.into()),
        column("Status", "The phase, or why the pod is stuck in it.", |pod, now| Summary::of(pod, now).reason.into()),
        column("Restarts", "How often containers were started again.", |pod, now| {
            Summary::of(pod, now).restarts.into()
        }),
        age_column(),
        wide("IP", "The address of the pod.", |pod, _| or_none(address(pod))),
        wide("Node", "The node of the pod.", |pod, _| or_none(pod.text_at(&["spec", "nodeName"]))),
        wide("Nominated Node", "The node that is being made free for the pod.", |pod, _| {
            or_none(pod.text_at(&["status", "nominatedNodeName"]))
        }),
        wide("Readiness Gates", "Conditions that hold, of those that must.", |pod, _| readiness_gates(pod)),
    ]
}

/// Returns the first pod IP, or an empty string.
pub(super) fn address(pod: &Value) -> &str {
    pod.at(&["status", "podIPs"]).map_or("", |list| list[0].text_at(&["ip"]))
}

/// Table cells computed from the container statuses.
struct Summary {
    ready: String,
    reason: String,
    restarts: String,
}

#[derive(Default)]
struct Count {
    ready: usize,
    restarts: i64,
    last_restart: Option<Time>,
}

impl Summary {
    fn of(pod: &Value, now: Time) -> Self {
        let (mut all, mut sidecars) = (Count::default(), Count::default());
        let mut reason = phase(pod);
        let total = list(pod, "spec", "containers").len()
            + list(pod, "spec", "initContainers").iter().filter(|it| is_sidecar(it)).count();
        let initializing = init_containers(pod, &mut all, &mut sidecars, &mut reason);
        if !initializing || has_condition(pod, "Initialized") {
            all = Count { ready: all.ready, ..sidecars };
            containers(pod, &mut all, &mut reason);
        }
        if pod.at(&["metadata", "deletionTimestamp"]).is_some() {
            if pod.text_at(&["status", "reason"]) == "NodeLost" {
                "Unknown".clone_into(&mut reason);
            } else if !Pod(pod).is_terminal() {
                "Terminating".clone_into(&mut reason);
            }
        }
        let restarts = match all.last_restart {
            Some(last) if all.restarts != 0 => format!("{} ({} ago)", all.restarts, age(Some(last), now)),
            _ => all.restarts.to_string(),
        };
        Self { ready: format!("{}/{total}", all.ready), reason, restarts }
    }
}

impl Count {
    fn restarts_of(&mut self, status: &Value) {
        self.restarts += status.get("restartCount").and_then(Value::as_int).unwrap_or_default();
        let finished = status.str_at(&["lastState", "terminated", "finishedAt"]).and_then(|at| Time::parse(at).ok());
        self.last_restart = self.last_restart.max(finished);
    }
}

fn phase(pod: &Value) -> String {
    let gated = |condition: &Value| {
        condition.str_at(&["type"]) == Some("PodScheduled") && condition.str_at(&["reason"]) == Some("SchedulingGated")
    };
    let reason = pod.text_at(&["status", "reason"]);
    if list(pod, "status", "conditions").iter().any(gated) {
        "SchedulingGated".to_owned()
    } else if reason.is_empty() {
        pod.text_at(&["status", "phase"]).to_owned()
    } else {
        reason.to_owned()
    }
}

/// Inspects init containers up to the first unfinished one. Returns whether there is one.
fn init_containers(pod: &Value, all: &mut Count, sidecars: &mut Count, reason: &mut String) -> bool {
    let specs = list(pod, "spec", "initContainers");
    for (index, status) in list(pod, "status", "initContainerStatuses").iter().enumerate() {
        all.restarts_of(status);
        let is_sidecar = specs.iter().rfind(|it| it.get("name") == status.get("name")).is_some_and(is_sidecar);
        if is_sidecar {
            sidecars.restarts_of(status);
        }
        let terminated = state(status, "terminated");
        let waiting = state(status, "waiting").and_then(|it| it.str_at(&["reason"])).unwrap_or_default();
        if terminated.is_some_and(|it| it.get("exitCode").and_then(Value::as_int).unwrap_or_default() == 0) {
            continue;
        }
        if is_sidecar && status.get("started").and_then(Value::as_bool).unwrap_or_default() {
            all.ready += usize::from(status.get("ready").and_then(Value::as_bool).unwrap_or_default());
            continue;
        }
        *reason = match terminated {
            Some(terminated) => format!("Init:{}", termination_reason(terminated)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{index}/{}", specs.len()),
        };
        return true;
    }
    false
}

fn containers(pod: &Value, all: &mut Count, reason: &mut String) {
    let mut any_runs = false;
    for status in list(pod, "status", "containerStatuses").iter().rev() {
        all.restarts_of(status);
        let waiting = state(status, "waiting").and_then(|it| it.str_at(&["reason"])).unwrap_or_default();
        if !waiting.is_empty() {
            waiting.clone_into(reason);
        } else if let Some(terminated) = state(status, "terminated") {
            *reason = termination_reason(terminated);
        } else if state(status, "running").is_some() && status.get("ready").and_then(Value::as_bool) == Some(true) {
            any_runs = true;
            all.ready += 1;
        }
    }
    // A pod with a running container is not completed.
    if reason == "Completed" && any_runs {
        let ready = if has_condition(pod, "Ready") { "Running" } else { "NotReady" };
        ready.clone_into(reason);
    }
}

/// Returns the termination reason of a container.
fn termination_reason(terminated: &Value) -> String {
    let number = |field: &str| terminated.get(field).and_then(Value::as_int).unwrap_or_default();
    match terminated.text_at(&["reason"]) {
        "" if number("signal") != 0 => format!("Signal:{}", number("signal")),
        "" => format!("ExitCode:{}", number("exitCode")),
        reason => reason.to_owned(),
    }
}

fn readiness_gates(pod: &Value) -> Value {
    let gates = list(pod, "spec", "readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let holds = |gate: &&Value| {
        let kind = gate.text_at(&["conditionType"]);
        has_condition(pod, kind)
    };
    format!("{}/{}", gates.iter().filter(holds).count(), gates.len()).into()
}

fn is_sidecar(container: &Value) -> bool {
    container.str_at(&["restartPolicy"]) == Some("Always")
}

fn state<'a>(status: &'a Value, state: &str) -> Option<&'a Value> {
    status.at(&["state", state]).filter(|state| !state.is_null())
}

fn list<'a>(pod: &'a Value, section: &str, field: &str) -> &'a [Value] {
    pod.list_at(&[section, field])
}

fn or_none(text: &str) -> Value {
    if text.is_empty() { "<none>".into() } else { text.into() }
}
