//! Container statuses.

use apimachinery::{Object, Value, value};
use cgroups::Controllers;

use super::{Facts, format_time};
use crate::plan::Observation;
use crate::pod::{Container, Pod, Role};
use crate::runtime_status::{self, Exit, State, UNKNOWN_EXIT};

/// The container statuses of a pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Statuses {
    /// In the order of the spec.
    pub init: Vec<Value>,
    /// Sorted by name, as upstream.
    pub app: Vec<Value>,
    /// Sorted by name.
    pub ephemeral: Vec<Value>,
}

impl Statuses {
    /// Returns the status of an app container.
    pub(super) fn app_of(&self, name: &str) -> &Value {
        find(&self.app, name)
    }

    /// Returns the status of an init container or sidecar.
    pub(super) fn init_of(&self, name: &str) -> &Value {
        find(&self.init, name)
    }
}

fn find<'a>(list: &'a [Value], name: &str) -> &'a Value {
    list.iter().find(|status| status.str_at(&["name"]) == Some(name)).unwrap_or(&Value::Null)
}

/// Returns the statuses of all containers.
pub(super) fn all(observed: &Observation<'_>, facts: &Facts) -> Statuses {
    let one = |container| status(observed, facts, container);
    let mut statuses = Statuses {
        init: observed.pod.init_containers().map(one).collect(),
        app: observed.pod.app_containers().map(one).collect(),
        ephemeral: observed.pod.ephemeral_containers().map(one).collect(),
    };
    let by_name = |a: &Value, b: &Value| a.str_at(&["name"]).cmp(&b.str_at(&["name"]));
    statuses.app.sort_by(by_name);
    statuses.ephemeral.sort_by(by_name);
    statuses
}

fn status(observed: &Observation<'_>, facts: &Facts, container: Container<'_>) -> Value {
    let Observation { pod, runtime, local, unenforced, now } = *observed;
    let known = pod.known_status(container);
    let mut all = runtime.of(container.name());
    let (latest, before) = (all.next(), all.find(|one| one.exit().is_some()));
    let (mut state, mut last) = match latest {
        Some(latest) => {
            let state = |one| state_of(one, default_waiting_reason(pod), facts);
            (state(latest), before.map(state))
        }
        None => missing(pod, known),
    };
    let restarts = |exit: &Exit| container.restarts_after(pod, exit.code.into()) || observed.starts_again(container);
    let exit = latest.and_then(runtime_status::Container::exit);
    let pause = exit
        .filter(|exit| restarts(exit))
        .filter(|exit| !local.backoffs.was_tried(container.name(), exit.finished_at))
        .and_then(|exit| local.backoffs.waiting(container.name(), exit.finished_at, now));
    // A container that failed to start and must not retry is terminated, not waiting.
    let waiting = local.waiting.get(container.name()).filter(|_| exit.is_none_or(restarts));
    let waiting_state = waiting.map(|waiting| (waiting.reason.clone(), waiting.message.clone()));
    let waiting_state = waiting_state.or_else(|| {
        let (wait, _) = pause.filter(|_| local.ending.is_none())?;
        let (name, pod) = (container.name(), pod.described());
        Some(("CrashLoopBackOff".to_owned(), format!("back-off {wait} restarting failed container={name} pod={pod}")))
    });
    // A container that restarts in any case is reported as waiting, since a terminated container may not be allowed to
    // run again.
    let starts_again = observed.starts_again(container) && local.ending.is_none();
    let waiting_state =
        waiting_state.or_else(|| starts_again.then(|| (default_waiting_reason(pod).to_owned(), String::new())));
    if let (Some((reason, message)), false) = (waiting_state, latest.is_some_and(runtime_status::Container::is_running))
    {
        if state.get("terminated").is_some() {
            last = Some(state);
        }
        let mut waiting = Object::new();
        waiting.insert("reason", reason);
        if !message.is_empty() {
            waiting.insert("message", message);
        }
        state = value!({"waiting": waiting});
    }
    let (started, ready) = started_and_ready(observed, container, latest);
    let restarts = latest.map_or_else(|| known["restartCount"].as_int().unwrap_or(0), |latest| latest.attempt.into());
    let id = latest.map(|latest| format!("{}://{}", facts.runtime_name, latest.id));
    let mut status = Object::new();
    status.insert("name", container.name());
    status.insert("state", state);
    status.insert("lastState", last.unwrap_or_else(Value::object));
    status.insert("ready", ready);
    status.insert("restartCount", restarts);
    status.insert("image", latest.map_or(container.image(), |latest| latest.image.as_str()));
    status.insert("imageID", latest.map_or("", |latest| latest.image_ref.as_str()));
    if let Some(id) = id {
        status.insert("containerID", id);
    }
    if container.role != Role::Ephemeral {
        status.insert("started", started);
    }
    details(container, latest, unenforced, &mut status);
    Value::Object(status)
}

/// Adds the fields of a created container: resources, mounts, user.
fn details(
    container: Container<'_>,
    latest: Option<&runtime_status::Container>,
    unenforced: Controllers,
    status: &mut Object,
) {
    let mounts = container.spec["volumeMounts"].as_array().unwrap_or_default();
    let mount_statuses: Vec<Value> = mounts
        .iter()
        .map(|mount| {
            let mut mount_statuses: Object = ["name", "mountPath", "readOnly"]
                .into_iter()
                .filter_map(|field| Some((field, mount.get(field)?.clone())))
                .collect();
            if mount["readOnly"].as_bool() == Some(true) {
                let recursive = mount.str_at(&["recursiveReadOnly"]).unwrap_or("Disabled");
                mount_statuses.insert("recursiveReadOnly", if recursive == "Enabled" { "Enabled" } else { "Disabled" });
            }
            Value::Object(mount_statuses)
        })
        .collect();
    if !mount_statuses.is_empty() {
        status.insert("volumeMounts", mount_statuses);
    }
    let Some(latest) = latest else { return };
    if container.role != Role::Ephemeral {
        let desired = &container.spec["resources"];
        let resources = match &latest.resources {
            Some(actual) if latest.is_running() => {
                let mut reported = crate::resources::actual(desired, actual);
                crate::resources::remove_reported_limits(unenforced, &mut reported);
                reported
            }
            _ => desired.clone(),
        };
        if let Some(requests) = desired.get("requests") {
            status.insert("allocatedResources", requests.clone());
        }
        status.insert("resources", if resources.is_null() { Value::object() } else { resources });
    }
    if let Some(user) = latest.user.as_ref().filter(|_| latest.is_running()) {
        let groups: Vec<Value> = user.supplemental_groups.iter().map(|group| Value::Int(*group)).collect();
        let user = value!({"uid": (user.uid), "gid": (user.gid), "supplementalGroups": groups});
        status.insert("user", value!({"linux": user}));
    }
}

/// Returns the state and last state of a container that the runtime does not have: not yet, or no longer.
fn missing(pod: Pod<'_>, known: &Value) -> (Value, Option<Value>) {
    let last = known["lastState"].get("terminated").map(|terminated| value!({"terminated": (terminated.clone())}));
    if known["state"].get("terminated").is_some() {
        return (known["state"].clone(), last);
    }
    if known["state"].get("running").is_some() {
        // The container ran, and its exit code is unknown.
        let started = known["state"]["running"]["startedAt"].clone();
        let terminated = value!({"terminated": {"exitCode": UNKNOWN_EXIT, "reason": "ContainerStatusUnknown", "startedAt": started,
            "message": "The container could not be located when the pod was terminated"}});
        let waiting = value!({"waiting": {"reason": (default_waiting_reason(pod))}});
        return if pod.meta().is_deleting() { (terminated, last) } else { (waiting, Some(terminated)) };
    }
    (value!({"waiting": {"reason": (default_waiting_reason(pod))}}), last)
}

/// Returns the default waiting reason. As upstream, it is the same for every container of a pod.
fn default_waiting_reason(pod: Pod<'_>) -> &'static str {
    if pod.init_containers().len() > 0 { "PodInitializing" } else { "ContainerCreating" }
}

fn state_of(container: &runtime_status::Container, waiting_reason: &str, facts: &Facts) -> Value {
    match &container.state {
        State::Created => value!({"waiting": {"reason": waiting_reason}}),
        State::Running { since } => value!({"running": {"startedAt": (format_time(*since))}}),
        State::Exited(exit) => value!({"terminated": (terminated(container, exit, facts))}),
        State::Unknown => {
            let message = "The container could not be located when the pod was terminated";
            value!({"terminated": {"exitCode": UNKNOWN_EXIT, "reason": "ContainerStatusUnknown", "message": message}})
        }
    }
}

fn terminated(container: &runtime_status::Container, exit: &Exit, facts: &Facts) -> Object {
    let mut state = Object::new();
    state.insert("exitCode", exit.code);
    let reason = match (exit.reason.as_str(), exit.code) {
        ("", 0) => "Completed",
        ("", _) => "Error",
        (reason, _) => reason,
    };
    state.insert("reason", reason);
    if !exit.message.is_empty() {
        state.insert("message", exit.message.as_str());
    }
    let epoch = apimachinery::time::Time::from_unix(0, 0);
    state.insert("startedAt", format_time(exit.started_at.unwrap_or(epoch)));
    state.insert("finishedAt", format_time(exit.finished_at));
    state.insert("containerID", format!("{}://{}", facts.runtime_name, container.id));
    state
}

/// Returns `started` and `ready` from probes; a running container without probes is both.
fn started_and_ready(
    observed: &Observation<'_>,
    container: Container<'_>,
    latest: Option<&runtime_status::Container>,
) -> (bool, bool) {
    let Some(latest) = latest else { return (false, false) };
    match &latest.state {
        State::Running { .. } => {
            let verdicts = observed.local.probes.get(&latest.id).cloned().unwrap_or_default();
            let probed = |field: &str| container.spec.get(field).is_some_and(|probe| !probe.is_null());
            // A container has not started before its postStart hook completes.
            let hooked = container.spec["lifecycle"].get("postStart").is_some() && observed.local.starting;
            let started = !hooked && (!probed("startupProbe") || verdicts.started == Some(true));
            let ready = started
                && (!probed("readinessProbe") || verdicts.ready == Some(true))
                && container.role != Role::Init
                && container.role != Role::Ephemeral;
            (started, ready)
        }
        State::Exited(exit) => (false, container.role == Role::Init && exit.code == 0),
        State::Created | State::Unknown => (false, false),
    }
}
