//! Pod planning: the next safe step of a pod, from its spec, the runtime's state and the worker's memory.
//!
//! ```text
//!   sandbox missing or lost ──> kill its containers ──> create one ──> init containers, sequentially ──> containers
//!                                                                       sidecars among them, kept running
//!   terminating ──> kill containers ──> kill sidecars, last first ──> stop the sandbox ──> done
//! ```

mod ending;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use apimachinery::Value;
use apimachinery::time::Time;
use cgroups::Controllers;

use crate::backoff::Backoffs;
use crate::pod::{Container, Pod, RestartPolicy, Role};
use crate::resize::Pending;
use crate::resources;
use crate::runtime_status::{self, RuntimePod, State};

/// Number of containers kept per name.
const RETAINED_PER_NAME: usize = 2;
/// Grace period of containers that restart because another one requested RestartAllContainers. The pod is not
/// terminating, so its own grace period does not apply.
const RESTART_GRACE_SECONDS: i64 = 1;

/// The inputs of [`plan`].
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// The desired pod.
    pub pod: Pod<'a>,
    pub runtime: &'a RuntimePod,
    /// The worker's memory.
    pub local: &'a Local,
    /// Controllers whose limits this node does not enforce.
    pub unenforced: Controllers,
    pub now: Time,
}

impl<'a> Observation<'a> {
    /// Whether the newest container with a name restarts regardless of its exit code: it was killed for a restart, or
    /// RestartAllContainers applies.
    pub fn starts_again(&self, container: Container<'_>) -> bool {
        let known = self.runtime.latest(container.name());
        known.is_some_and(|known| self.local.forced.contains(&known.id) || self.is_past(container, known))
    }

    /// Returns the newest container with a name, unless RestartAllContainers applied after its creation.
    fn current(&self, container: Container<'_>) -> Option<&'a runtime_status::Container> {
        self.runtime.latest(container.name()).filter(|known| !self.is_past(container, known))
    }

    /// Whether the runtime has lost a container that, according to the API server, exited and must not restart.
    pub fn is_over(&self, container: Container<'_>) -> bool {
        let exit_code = self.pod.known_status(container).at(&["state", "terminated", "exitCode"]);
        let code = exit_code.and_then(Value::as_int).filter(|_| self.runtime.latest(container.name()).is_none());
        // A static pod starts again after a reboot of its host.
        code.is_some_and(|code| !container.restarts_after(self.pod, code)) && !self.pod.is_static()
    }

    /// Returns the running containers that must restart because of RestartAllContainers.
    pub fn past_running(&self) -> impl Iterator<Item = &'a runtime_status::Container> {
        let past = move |known: &&runtime_status::Container| {
            self.pod.container(&known.name).is_some_and(|container| self.is_past(container, known))
        };
        self.runtime.running().filter(past)
    }

    fn is_past(&self, container: Container<'_>, known: &runtime_status::Container) -> bool {
        let Some(at) = self.restart_all_time().filter(|_| container.role != Role::Ephemeral) else { return false };
        // Until the first init container is created again, all containers are of the previous run. This includes a
        // container whose start was in progress at that time and that was therefore created later.
        let first = self.pod.init_containers().next().and_then(|first| self.runtime.latest(first.name()));
        known.created_at.min(first.map_or(i64::MAX, |first| first.created_at)) <= at
    }

    /// Returns the latest exit that triggers RestartAllContainers, in Unix nanoseconds.
    fn restart_all_time(&self) -> Option<i64> {
        let ends = self.runtime.containers.iter().filter_map(|known| {
            let (exit, container) = (known.exit()?, self.pod.container(&known.name)?);
            let at = exit.finished_at.since(Time::from_unix(0, 0)).nanos();
            container.restarts_all_after(exit.code.into()).then_some(at)
        });
        ends.max()
    }
}

/// A worker's memory of its pod; all of it may be lost.
#[derive(Clone, Debug, Default)]
pub struct Local {
    /// Set once the pod must terminate.
    pub ending: Option<Ending>,
    /// Restart backoffs by container name.
    pub backoffs: Backoffs,
    /// IDs of containers that were killed for a restart.
    pub forced: BTreeSet<String>,
    /// Containers being killed, by ID, with the end of their grace period.
    pub killing: BTreeMap<String, Time>,
    /// A sandbox or container is being created or started.
    pub starting: bool,
    /// Probe results by container ID.
    pub probes: BTreeMap<String, ProbeState>,
    /// Waiting reasons by container name.
    pub waiting: BTreeMap<String, Waiting>,
    /// In-place resizes in progress, by container ID.
    pub resizing: BTreeMap<String, Resizing>,
    /// Set while a resize of the pod is pending.
    pub resize: Option<Pending>,
    /// Set if the sandbox could not be created.
    pub sandbox_failure: Option<Waiting>,
}

/// An in-place resize of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resizing {
    pub retry_at: Time,
    /// Error message of the last attempt, if it failed.
    pub problem: Option<String>,
}

/// The termination of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    pub cause: Cause,
    pub since: Time,
    pub grace_seconds: i64,
}

/// The cause of a pod's termination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The pod was deleted in the API server.
    Deleted,
    /// All containers have exited and will not restart.
    Completed,
    /// The pod exceeded its deadline, was evicted or was rejected.
    Failed { reason: String, message: String },
}

/// Probe results of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeState {
    /// `None` without a startup probe.
    pub started: Option<bool>,
    /// `None` without a readiness probe.
    pub ready: Option<bool>,
    /// The kind of probe whose failure requires a kill.
    pub failed: Option<&'static str>,
}

/// The waiting reason of a container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub reason: String,
    pub message: String,
    pub retry_at: Time,
}

/// One safe step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodPlan {
    /// Starts run in this order.
    pub actions: Vec<Action>,
    /// Time of the next decision if nothing else happens.
    pub wake_at: Option<Time>,
    /// Set if the pod must terminate.
    pub end: Option<Cause>,
    /// The pod has terminated and none of its containers or sandboxes run.
    pub done: bool,
}

/// One action of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    CreateSandbox {
        /// Number of previous sandboxes.
        attempt: u32,
    },
    StopSandbox {
        id: String,
    },
    /// Create and start a container in the newest sandbox.
    Start {
        name: String,
        /// Number of previous containers with this name.
        attempt: u32,
        /// Exit time of the previous container.
        after: Option<Time>,
    },
    /// Change the resources of a running container.
    Resize {
        id: String,
        name: String,
    },
    /// Remove a container that has been replaced.
    Remove {
        id: String,
    },
    /// Terminate a container.
    Kill {
        id: String,
        name: String,
        grace_seconds: i64,
        /// Message of the event.
        message: String,
        /// Whether the container restarts regardless of its exit code.
        restart: bool,
        /// Whether the preStop handler runs first.
        hook: bool,
    },
}

/// Returns the next step of a pod.
pub fn plan(observed: &Observation<'_>) -> PodPlan {
    if let Some(ending) = &observed.local.ending {
        return ending::plan(observed, ending);
    }
    let mut plan = PodPlan::default();
    if let Some(deadline) = deadline(observed.pod) {
        if observed.now >= deadline {
            let message = "Pod was active on the node longer than the specified deadline".to_owned();
            plan.end = Some(Cause::Failed { reason: "DeadlineExceeded".to_owned(), message });
            return plan;
        }
        plan.wake(deadline);
    }
    match usable_sandbox(observed) {
        Some(sandbox) => containers(observed, &sandbox.id, &mut plan),
        None => replace_sandbox(observed, &mut plan),
    }
    prune_exited(observed, &mut plan);
    plan
}

/// Removes exited containers except the two newest per name, whose status and logs are available to users.
fn prune_exited(observed: &Observation<'_>, plan: &mut PodPlan) {
    let names: BTreeSet<&str> = observed.runtime.containers.iter().map(|one| one.name.as_str()).collect();
    for name in names {
        let old = observed.runtime.of(name).skip(RETAINED_PER_NAME).filter(|container| container.exit().is_some());
        plan.actions.extend(old.map(|container| Action::Remove { id: container.id.clone() }));
    }
}

/// Returns the end of the pod's `activeDeadlineSeconds`.
fn deadline(pod: Pod<'_>) -> Option<Time> {
    let seconds = pod.spec()["activeDeadlineSeconds"].as_int()?;
    let start = Time::parse(pod.0.str_at(&["status", "startTime"])?).ok()?;
    Some(start.plus(apimachinery::time::Duration::from_seconds(seconds)))
}

fn usable_sandbox<'a>(observed: &Observation<'a>) -> Option<&'a runtime_status::Sandbox> {
    let host_network = observed.pod.flag("hostNetwork");
    observed.runtime.sandbox().filter(|sandbox| {
        sandbox.ready && sandbox.host_network == host_network && (host_network || !sandbox.ips.is_empty())
    })
}

/// Kills the containers of a lost sandbox, then creates a new sandbox if any container still has to run.
fn replace_sandbox(observed: &Observation<'_>, plan: &mut PodPlan) {
    let Observation { pod, runtime, local, now, .. } = *observed;
    for container in runtime.running().filter(|container| !local.killing.contains_key(&container.id)) {
        plan.actions.push(Action::Kill {
            id: container.id.clone(),
            name: container.name.clone(),
            grace_seconds: pod.grace_seconds(),
            message: "Pod sandbox changed, it will be killed and re-created.".to_owned(),
            restart: false,
            hook: true,
        });
    }
    if !plan.actions.is_empty() || local.starting || runtime.running().next().is_some() {
        return;
    }
    for sandbox in runtime.sandboxes.iter().filter(|sandbox| sandbox.ready) {
        plan.actions.push(Action::StopSandbox { id: sandbox.id.clone() });
    }
    if !plan.actions.is_empty() {
        return;
    }
    let never = pod.app_containers().all(|container| container.restart_policy(pod) == RestartPolicy::Never);
    let left = pod.app_containers().any(|container| match runtime.latest(container.name()) {
        None => !observed.is_over(container),
        Some(known) => known.exit().is_none_or(|exit| container.restarts_after(pod, exit.code.into())),
    });
    let attempt = runtime.sandbox().map_or(0, |sandbox| sandbox.attempt + 1);
    if !left || never && attempt > 0 && !runtime.containers.is_empty() {
        return;
    }
    match &local.sandbox_failure {
        Some(failure) if failure.retry_at > now => plan.wake(failure.retry_at),
        _ => plan.actions.push(Action::CreateSandbox { attempt }),
    }
}

fn containers(observed: &Observation<'_>, sandbox: &str, plan: &mut PodPlan) {
    let Observation { pod, runtime, .. } = *observed;
    if !cleared(observed, plan) {
        return;
    }
    for container in pod.ephemeral_containers() {
        if runtime.latest(container.name()).is_none() {
            start(observed, container, plan);
        }
    }
    if !initialized(observed, sandbox, plan) {
        return;
    }
    for container in pod.app_containers() {
        let Some(known) = observed.current(container) else {
            if !observed.is_over(container) {
                start(observed, container, plan);
            }
            continue;
        };
        keep(observed, container, known, plan);
    }
}

/// Kills running containers that must restart because of RestartAllContainers. Returns whether all have exited.
fn cleared(observed: &Observation<'_>, plan: &mut PodPlan) -> bool {
    let mut clear = true;
    for known in observed.past_running() {
        clear = false;
        if !observed.local.killing.contains_key(&known.id) {
            plan.actions.push(Action::Kill {
                id: known.id.clone(),
                name: known.name.clone(),
                grace_seconds: RESTART_GRACE_SECONDS,
                message: format!("Container {} will be restarted with all containers of its pod", known.name),
                restart: true,
                hook: false,
            });
        }
    }
    clear
}

/// Advances init containers and sidecars. Returns whether app containers may run.
fn initialized(observed: &Observation<'_>, sandbox: &str, plan: &mut PodPlan) -> bool {
    let Observation { pod, local, .. } = *observed;
    let in_sandbox = |container: Container<'_>| observed.current(container).filter(|known| known.sandbox == sandbox);
    // Once an app container was created, all init containers are done, even if they were removed since.
    let past = pod.app_containers().any(|container| in_sandbox(container).is_some());
    for container in pod.init_containers() {
        let known = in_sandbox(container);
        match (container.role, known) {
            (Role::Sidecar, Some(known)) => {
                keep(observed, container, known, plan);
                let verdicts = local.probes.get(&known.id);
                let probed = container.spec.get("startupProbe").is_some();
                let started = known.is_running()
                    && (!probed || verdicts.is_some_and(|verdicts| verdicts.started == Some(true)))
                    && !local.starting;
                if !started && !past {
                    return false;
                }
            }
            (_, None) if past && container.role != Role::Sidecar => {}
            (_, None) => {
                start(observed, container, plan);
                if !past {
                    return false;
                }
            }
            (_, Some(known)) => {
                let done = known.exit().is_some_and(|exit| exit.code == 0);
                if !done && !past {
                    keep(observed, container, known, plan);
                    return false;
                }
            }
        }
    }
    true
}

/// Kills a container that must not keep running, and restarts an exited one according to its restart policy.
fn keep(observed: &Observation<'_>, container: Container<'_>, known: &runtime_status::Container, plan: &mut PodPlan) {
    let Observation { pod, local, .. } = *observed;
    match &known.state {
        State::Running { .. } => {
            let restarts = container.restart_policy(pod) != RestartPolicy::Never;
            let probe = local.probes.get(&known.id).and_then(|verdicts| verdicts.failed);
            let trigger = if known.hash != crate::container::hash(container) && !known.hash.is_empty() {
                Some((format!("Container {} definition changed", container.name()), true))
            } else {
                probe.map(|probe| (format!("Container {} failed {probe} probe", container.name()), restarts))
            };
            let Some((mut message, restart)) = trigger.or_else(|| resize(observed, container, known, plan)) else {
                return;
            };
            if local.killing.contains_key(&known.id) {
                return;
            }
            if restart {
                message.push_str(", will be restarted");
            }
            let grace_seconds = match probe {
                Some(probe) => container.spec[probe_field(probe)]["terminationGracePeriodSeconds"].as_int(),
                None => None,
            };
            plan.actions.push(Action::Kill {
                id: known.id.clone(),
                name: known.name.clone(),
                grace_seconds: grace_seconds.unwrap_or(pod.grace_seconds()),
                message,
                restart,
                hook: true,
            });
        }
        State::Exited(exit) => {
            if container.restarts_after(pod, exit.code.into()) || observed.starts_again(container) {
                start(observed, container, plan);
            }
        }
        // The worker that created the container was stopped before it started it.
        State::Created => start(observed, container, plan),
        State::Unknown => {
            if container.restarts_after(pod, runtime_status::UNKNOWN_EXIT.into()) {
                start(observed, container, plan);
            }
        }
    }
}

/// Plans an in-place resize, or returns a restart if the resize policy requires it.
fn resize(
    observed: &Observation<'_>,
    container: Container<'_>,
    known: &runtime_status::Container,
    plan: &mut PodPlan,
) -> Option<(String, bool)> {
    let actual = known.resources.as_ref().filter(|_| container.role != Role::Ephemeral)?;
    // The OOM score is not changed in place, so the node's memory does not matter here.
    let mut desired = resources::of_container(observed.pod, container, 1);
    resources::remove_limits(observed.unenforced, &mut desired);
    let names = resources::differences(&desired, actual);
    if names.is_empty() {
        return None;
    }
    let policies = container.spec["resizePolicy"].as_array().unwrap_or_default();
    let restarts = |policy: &Value| {
        policy.str_at(&["restartPolicy"]) == Some("RestartContainer")
            && names.iter().any(|name| policy.str_at(&["resourceName"]) == Some(name))
    };
    if policies.iter().any(restarts) {
        return Some((format!("Container {} resize requires restart", container.name()), true));
    }
    match observed.local.resizing.get(&known.id) {
        Some(resizing) if resizing.retry_at > observed.now => plan.wake(resizing.retry_at),
        _ => plan.actions.push(Action::Resize { id: known.id.clone(), name: known.name.clone() }),
    }
    None
}

fn probe_field(kind: &str) -> &'static str {
    if kind == "startup" { "startupProbe" } else { "livenessProbe" }
}

/// Starts a container unless another start is in progress or a backoff applies.
fn start(observed: &Observation<'_>, container: Container<'_>, plan: &mut PodPlan) {
    let Observation { pod, runtime, local, now, .. } = *observed;
    let known = runtime.latest(container.name());
    let after = known.and_then(runtime_status::Container::exit).map(|exit| exit.finished_at);
    let pause = after.and_then(|after| local.backoffs.waiting(container.name(), after, now)).map(|(_, until)| until);
    let retry = local.waiting.get(container.name()).map(|waiting| waiting.retry_at).filter(|at| *at > now);
    if let Some(at) = pause.into_iter().chain(retry).max() {
        plan.wake(at);
        return;
    }
    if local.starting {
        return;
    }
    let counted = pod.known_status(container)["restartCount"].as_int().and_then(|count| u32::try_from(count).ok());
    let attempt = match known {
        Some(known) => known.attempt + 1,
        // The runtime may have lost containers that the API server still counts.
        None => counted.filter(|count| *count > 0).map_or(0, |count| count + 1),
    };
    plan.actions.push(Action::Start { name: container.name().to_owned(), attempt, after });
}

impl PodPlan {
    pub(crate) fn wake(&mut self, at: Time) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }
}

/// A stable single line for logs, debug output and test expectations.
impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateSandbox { attempt } => write!(out, "create sandbox {attempt}"),
            Self::StopSandbox { id } => write!(out, "stop sandbox {id}"),
            Self::Resize { name, id } => write!(out, "resize {name} {id}"),
            Self::Remove { id } => write!(out, "remove {id}"),
            Self::Start { name, attempt, .. } => write!(out, "start {name} {attempt}"),
            Self::Kill { name, id, grace_seconds, hook, .. } => {
                let how = if *hook { "" } else { " without its hook" };
                write!(out, "kill {name} {id} within {grace_seconds}s{how}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
