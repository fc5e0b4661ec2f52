//! Pod status as a pure function of the observed state: phase, conditions, container statuses, addresses.

mod conditions;
mod containers;

use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Object, Value, value};

use crate::plan::{Cause, Observation};
use crate::pod::{Pod, Role};

/// Properties that are equal for all pods of a node.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The primary address comes first.
    pub host_ips: Vec<String>,
    /// Prefix of container IDs, such as `containerd`.
    pub runtime_name: String,
}

/// Returns the current status of a pod. The status in the API server is part of the observation: transition times and
/// fields of other writers are kept.
pub fn status(observed: &Observation<'_>, facts: &Facts) -> Value {
    let pod = observed.pod;
    let statuses = containers::all(observed, facts);
    let reached = phase(observed, &statuses);
    let phase = reported_phase(observed, &statuses, reached);
    let mut status = Object::new();
    status.insert("phase", phase);
    let cause = observed.local.ending.as_ref().map(|ending| &ending.cause);
    if let (Some(Cause::Failed { reason, message }), "Failed") = (cause, phase) {
        status.insert("reason", reason.as_str());
        status.insert("message", message.as_str());
    }
    let known = &pod.0["status"];
    let start = known.str_at(&["startTime"]).map_or_else(|| observed.now.to_string(), str::to_owned);
    status.insert("startTime", start);
    if let Some(generation) = Some(Meta::of(pod.0).generation()).filter(|generation| *generation > 0) {
        status.insert("observedGeneration", generation);
    }
    status.insert("qosClass", pod.qos_class().as_str());
    addresses(observed, facts, &mut status);
    for (field, list) in [
        ("initContainerStatuses", &statuses.init),
        ("containerStatuses", &statuses.app),
        ("ephemeralContainerStatuses", &statuses.ephemeral),
    ] {
        if !list.is_empty() {
            status.insert(field, list.clone());
        }
    }
    status.insert("conditions", conditions::all(observed, reached, &statuses));
    // Fields of other writers stay. Reason and message stay only while the phase does not change.
    for (field, value) in known.as_object().into_iter().flat_map(Object::iter) {
        let past = ["reason", "message"].contains(&field) && pod.phase() != phase;
        if !past && !status.contains_key(field) {
            status.insert(field, value.clone());
        }
    }
    Value::Object(status)
}

/// Keeps `startTime` and the transition times of unchanged conditions from the last reported status, which the watch
/// may not have returned yet.
pub fn keep_times(status: &mut Value, reported: &Value) {
    let Some(status) = status.as_object_mut() else { return };
    if let Some(start) = reported.get("startTime") {
        status.insert("startTime", start.clone());
    }
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let same = |before: &&Value| before["type"] == condition["type"] && before["status"] == condition["status"];
        let before = reported["conditions"].as_array().unwrap_or_default().iter().find(same);
        let since = before.and_then(|before| before.get("lastTransitionTime")).cloned();
        if let (Some(condition), Some(since)) = (condition.as_object_mut(), since) {
            condition.insert("lastTransitionTime", since);
        }
    }
}

/// Keeps containers terminated that were reported as terminated and must not run again, even if the runtime lost the
/// container or its sandbox. The API server rejects any other status.
pub fn keep_ends(status: &mut Value, pod: Pod<'_>, reported: &Value) {
    for container in pod.containers() {
        let field = container.role.status_field();
        let is = |one: &&Value| one.str_at(&["name"]) == Some(container.name());
        let before = reported[field].as_array().unwrap_or_default().iter().find(is);
        let Some(code) = before.and_then(|before| before.at(&["state", "terminated", "exitCode"])?.as_int()) else {
            continue;
        };
        let mut list = status.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten();
        let now = list.find(|one| one.str_at(&["name"]) == Some(container.name()));
        let now = now.filter(|now| now["state"].get("terminated").is_none() && !container.may_run_after(pod, code));
        if let (Some(now), Some(before)) = (now, before) {
            *now = before.clone();
        }
    }
}

/// Whether a pod has reached a terminal phase, even if some of its containers still run.
pub fn is_over(observed: &Observation<'_>, facts: &Facts) -> bool {
    is_terminal(phase(observed, &containers::all(observed, facts)))
}

fn is_terminal(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// Returns the phase to report. A terminal phase is reported only after all containers have exited, since controllers
/// then start a replacement.
fn reported_phase(observed: &Observation<'_>, statuses: &containers::Statuses, reached: &'static str) -> &'static str {
    let runs = observed.runtime.running().next().is_some() || observed.local.starting;
    if !is_terminal(reached) || observed.pod.is_terminal() || !runs {
        return reached;
    }
    if has_started(statuses) { "Running" } else { "Pending" }
}

/// Whether any app container has ever run.
fn has_started(statuses: &containers::Statuses) -> bool {
    statuses.app.iter().any(|status| {
        status["state"].get("running").is_some()
            || status["state"].get("terminated").is_some()
            || status["lastState"].get("terminated").is_some()
    })
}

fn addresses(observed: &Observation<'_>, facts: &Facts, status: &mut Object) {
    let list = |ips: &[String]| -> Vec<Value> { ips.iter().map(|ip| value!({"ip": (ip.as_str())})).collect() };
    if let Some(ip) = facts.host_ips.first() {
        status.insert("hostIP", ip.as_str());
        status.insert("hostIPs", list(&facts.host_ips));
    }
    let sandbox = observed.runtime.sandbox();
    let ips: &[String] = if observed.pod.flag("hostNetwork") {
        if sandbox.is_some() { &facts.host_ips } else { &[] }
    } else {
        sandbox.map_or(&[], |sandbox| &sandbox.ips)
    };
    if let Some(ip) = ips.first() {
        status.insert("podIP", ip.as_str());
        status.insert("podIPs", list(ips));
    }
}

/// Number of containers by state.
#[derive(Default)]
struct Counts {
    running: usize,
    waiting: usize,
    stopped: usize,
    succeeded: usize,
    unknown: usize,
}

/// Returns `Pending`, `Running`, `Succeeded` or `Failed`, by upstream's rules.
fn phase(observed: &Observation<'_>, statuses: &containers::Statuses) -> &'static str {
    let pod = observed.pod;
    // A terminal phase never changes.
    match pod.phase() {
        "Succeeded" => return "Succeeded",
        "Failed" => return "Failed",
        _ => {}
    }
    let ending = observed.local.ending.as_ref();
    if let Some(Cause::Failed { .. }) = ending.map(|ending| &ending.cause) {
        return "Failed";
    }
    let terminated = ending.is_some() && observed.runtime.running().next().is_none();
    let (pending, failed) = initialization(observed, statuses);
    if failed {
        return "Failed";
    }
    let counts = counts(statuses);
    if terminated && counts.running == 0 && !observed.runtime.containers.is_empty() {
        let all = counts.waiting == 0 && counts.stopped == counts.succeeded && !pending;
        return if all { "Succeeded" } else { "Failed" };
    }
    if pending || counts.waiting > 0 {
        return "Pending";
    }
    if counts.running > 0 && counts.unknown == 0 {
        return "Running";
    }
    if counts.stopped == 0 || counts.unknown > 0 {
        return "Pending";
    }
    let restarts = pod.app_containers().any(|container| {
        let status = statuses.app_of(container.name());
        let terminated = ["state", "lastState"].into_iter().find_map(|field| status[field].get("terminated"));
        let code = terminated.and_then(|terminated| terminated.get("exitCode")?.as_int()).unwrap_or(0);
        observed.starts_again(container) || container.restarts_after(pod, code)
    });
    match (restarts, counts.stopped == counts.succeeded) {
        (true, _) => "Running",
        (false, true) => "Succeeded",
        (false, false) => "Failed",
    }
}

/// Whether init containers are pending, and whether one has failed without a retry.
fn initialization(observed: &Observation<'_>, statuses: &containers::Statuses) -> (bool, bool) {
    let (mut pending, mut failed) = (false, false);
    for container in observed.pod.init_containers() {
        let gives_up =
            |code: i64| !observed.starts_again(container) && !container.restarts_after(observed.pod, code) && code != 0;
        let status = statuses.init_of(container.name());
        let code = status.at(&["state", "terminated", "exitCode"]).and_then(Value::as_int);
        let last = status.at(&["lastState", "terminated", "exitCode"]).and_then(Value::as_int);
        match (container.role, code) {
            (Role::Sidecar, _) => pending |= status["started"].as_bool() != Some(true) && code.is_none(),
            (_, Some(0)) => {}
            (_, Some(code)) => (pending, failed) = (true, failed || gives_up(code)),
            (_, None) => {
                pending = true;
                failed |= status["state"].get("waiting").is_some() && last.is_some_and(gives_up);
            }
        }
    }
    // Once an app container has run, initialization is complete.
    let past = has_started(statuses);
    (pending && !past, failed && !past)
}

fn counts(statuses: &containers::Statuses) -> Counts {
    let mut counts = Counts::default();
    for status in &statuses.app {
        let exit = |field: &str| status[field].at(&["terminated", "exitCode"]).and_then(Value::as_int);
        if status["state"].get("running").is_some() {
            counts.running += 1;
        } else if let Some(code) = exit("state") {
            counts.stopped += 1;
            counts.succeeded += usize::from(code == 0);
        } else if status["state"].get("waiting").is_some() {
            match exit("lastState") {
                // The container ran before and will restart.
                Some(_) => counts.stopped += 1,
                None => counts.waiting += 1,
            }
        } else {
            counts.unknown += 1;
        }
    }
    counts
}

/// Whether a status differs from the known one. Null fields count as absent, since the API server may drop them.
pub fn has_changed(known: &Value, status: &Value) -> bool {
    without_nulls(known) != without_nulls(status)
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let fields = object.iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

/// Formats a time for the API.
fn format_time(time: Time) -> String {
    time.to_string()
}

#[cfg(test)]
mod tests;
