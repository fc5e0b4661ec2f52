//! What to do next for a pod: one safe step from what is wanted, what the runtime has, and what the worker remembers.
//!
//! ```text
//!   sandbox missing or lost ──> kill what is left in it ──> make one ──> init containers, one by one ──> containers
//!                                                                             sidecars among them, kept running
//!   ending ──> kill containers ──> kill sidecars, last first ──> stop the sandbox ──> done
//! ```

mod ending;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use machinery::Value;
use machinery::time::Time;

use crate::backoff::Backoffs;
use crate::observed::{self, RuntimePod, State};
use crate::pod::{Container, Pod, RestartPolicy, Role};
use crate::resize::Pending;
use crate::resources;

/// How many containers of a name are kept.
const KEPT: usize = 2;
/// Containers that start again because another one ended get no more than a moment, whatever their pod says: nothing goes away.
const RESTART_GRACE_SECONDS: i64 = 1;

/// Everything that the decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The pod as it is wanted.
    pub pod: Pod<'a>,
    /// What the runtime has of it.
    pub runtime: &'a RuntimePod,
    /// What its worker remembers.
    pub local: &'a Local,
    /// The time.
    pub now: Time,
}

impl<'a> Observed<'a> {
    /// Whether the newest container of a name starts again however it ended: it was killed for that, or another took all with it.
    pub fn starts_again(&self, container: Container<'_>) -> bool {
        let known = self.runtime.latest(container.name());
        known.is_some_and(|known| self.local.forced.contains(&known.id) || self.is_past(container, known))
    }

    /// The newest container of a name, unless all have to start again since it was made.
    fn current(&self, container: Container<'_>) -> Option<&'a observed::Container> {
        self.runtime.latest(container.name()).filter(|known| !self.is_past(container, known))
    }

    /// Whether nothing is left of a container but the API server's word that it ended, after which it may not run again.
    pub fn is_over(&self, container: Container<'_>) -> bool {
        let ended = self.pod.known_status(container).at(&["state", "terminated", "exitCode"]);
        let code = ended.and_then(Value::as_int).filter(|_| self.runtime.latest(container.name()).is_none());
        // A pod of a file begins anew when its machine does.
        code.is_some_and(|code| !container.restarts_after(self.pod, code)) && !self.pod.is_static()
    }

    /// What runs still of what must start again because another container ended as it did.
    pub fn past_running(&self) -> impl Iterator<Item = &'a observed::Container> {
        let past = move |known: &&observed::Container| {
            self.pod.container(&known.name).is_some_and(|container| self.is_past(container, known))
        };
        self.runtime.running().filter(past)
    }

    fn is_past(&self, container: Container<'_>, known: &observed::Container) -> bool {
        let Some(at) = self.all_ended_at().filter(|_| container.role != Role::Ephemeral) else { return false };
        // What was just being started when all had to end is made later, but not after what must come before it.
        let first = self.pod.init_containers().next().and_then(|first| self.runtime.latest(first.name()));
        known.created_at.min(first.map_or(i64::MAX, |first| first.created_at)) <= at
    }

    /// When a container last ended in the way after which all start again, in nanoseconds.
    fn all_ended_at(&self) -> Option<i64> {
        let ends = self.runtime.containers.iter().filter_map(|known| {
            let (exit, container) = (known.exit()?, self.pod.container(&known.name)?);
            let at = exit.finished_at.since(Time::from_unix(0, 0)).nanos();
            container.restarts_all_after(exit.code.into()).then_some(at)
        });
        ends.max()
    }
}

/// What a worker remembers of its pod; all of it can be lost.
#[derive(Clone, Debug, Default)]
pub struct Local {
    /// The pod is to end.
    pub ending: Option<Ending>,
    /// How long containers that failed are left alone, by name.
    pub backoffs: Backoffs,
    /// Containers, by id, that were killed so that they start again.
    pub forced: BTreeSet<String>,
    /// Containers, by id, that are being killed, and when their time is over.
    pub killing: BTreeMap<String, Time>,
    /// Something is being made or started.
    pub starting: bool,
    /// What probes say, by container id.
    pub probes: BTreeMap<String, Verdicts>,
    /// Why containers, by name, do not start.
    pub waiting: BTreeMap<String, Waiting>,
    /// Containers, by id, whose resources are being changed.
    pub resizing: BTreeMap<String, Resizing>,
    /// Why the pod has less or more than it should.
    pub resize: Option<Pending>,
    /// Why there is no sandbox.
    pub sandbox_failure: Option<Waiting>,
}

/// A change of what a container may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resizing {
    /// When it is tried again.
    pub retry_at: Time,
    /// Why it failed, if it did.
    pub problem: Option<String>,
}

/// Why and how a pod ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Why.
    pub cause: Cause,
    /// Since when.
    pub since: Time,
    /// How long its containers may take.
    pub grace_seconds: i64,
}

/// Why a pod ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Somebody deleted it.
    Deleted,
    /// All its containers have ended for good.
    Completed,
    /// Its time is over, the node is short of something, or it cannot be here at all.
    Failed {
        /// A word for machines.
        reason: String,
        /// A sentence for people.
        message: String,
    },
}

/// What the probes of one container say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Whether it has started; `None` without a startup probe.
    pub started: Option<bool>,
    /// Whether it is ready; `None` without a readiness probe.
    pub ready: Option<bool>,
    /// The kind of probe that says that it must be killed.
    pub failed: Option<&'static str>,
}

/// Why something waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// A word for machines.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// When it is tried again.
    pub retry_at: Time,
}

/// One safe step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodPlan {
    /// What to do; what is started is started in this order.
    pub actions: Vec<Action>,
    /// When to look again even if nothing happens.
    pub wake_at: Option<Time>,
    /// The pod must end.
    pub end: Option<Cause>,
    /// The pod has ended and nothing of it runs.
    pub done: bool,
}

/// A thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a sandbox.
    CreateSandbox {
        /// How many came before it.
        attempt: u32,
    },
    /// Stop a sandbox.
    StopSandbox {
        /// Which one.
        id: String,
    },
    /// Make and start a container in the newest sandbox.
    Start {
        /// Which one.
        name: String,
        /// How many came before it.
        attempt: u32,
        /// When the one before it ended.
        after: Option<Time>,
    },
    /// Change what a running container may use.
    Resize {
        /// Which one.
        id: String,
        /// Its name in the pod.
        name: String,
    },
    /// Forget a container that ended long ago.
    Remove {
        /// Which one.
        id: String,
    },
    /// End a container.
    Kill {
        /// Which one.
        id: String,
        /// Its name in the pod.
        name: String,
        /// How long it may take.
        grace_seconds: i64,
        /// What people are told.
        message: String,
        /// Whether it is to start again, however it ends.
        restart: bool,
        /// Whether its hook runs before.
        hook: bool,
    },
}

/// Decides.
pub fn plan(observed: &Observed<'_>) -> PodPlan {
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
    forget(observed, &mut plan);
    plan
}

/// Of each container the newest and the one before it are kept: people ask for both.
fn forget(observed: &Observed<'_>, plan: &mut PodPlan) {
    let names: BTreeSet<&str> = observed.runtime.containers.iter().map(|one| one.name.as_str()).collect();
    for name in names {
        let old = observed.runtime.of(name).skip(KEPT).filter(|container| container.exit().is_some());
        plan.actions.extend(old.map(|container| Action::Remove { id: container.id.clone() }));
    }
}

/// When a pod has been active for as long as it may.
fn deadline(pod: Pod<'_>) -> Option<Time> {
    let seconds = pod.spec()["activeDeadlineSeconds"].as_int()?;
    let start = Time::parse(pod.0.str_at(&["status", "startTime"])?).ok()?;
    Some(start.plus(machinery::time::Duration::from_seconds(seconds)))
}

fn usable_sandbox<'a>(observed: &Observed<'a>) -> Option<&'a observed::Sandbox> {
    let host_network = observed.pod.flag("hostNetwork");
    observed.runtime.sandbox().filter(|sandbox| {
        sandbox.ready && sandbox.host_network == host_network && (host_network || !sandbox.ips.is_empty())
    })
}

/// What ran in a lost sandbox ends first; then there is a new one, if anything is left to run in it.
fn replace_sandbox(observed: &Observed<'_>, plan: &mut PodPlan) {
    let Observed { pod, runtime, local, now } = *observed;
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

fn containers(observed: &Observed<'_>, sandbox: &str, plan: &mut PodPlan) {
    let Observed { pod, runtime, .. } = *observed;
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

/// When one container takes all with it, they end before any starts again; says whether they have.
fn cleared(observed: &Observed<'_>, plan: &mut PodPlan) -> bool {
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

/// Brings init containers and sidecars on; says whether the others may run.
fn initialized(observed: &Observed<'_>, sandbox: &str, plan: &mut PodPlan) -> bool {
    let Observed { pod, local, .. } = *observed;
    let in_sandbox = |container: Container<'_>| observed.current(container).filter(|known| known.sandbox == sandbox);
    // Once one of the others was made, everything before it is done, even if it was removed since.
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

/// Kills a container that must not go on, and starts one again that ended and should not have.
fn keep(observed: &Observed<'_>, container: Container<'_>, known: &observed::Container, plan: &mut PodPlan) {
    let Observed { pod, local, .. } = *observed;
    match &known.state {
        State::Running { .. } => {
            let restarts = container.restart_policy(pod) != RestartPolicy::Never;
            let probe = local.probes.get(&known.id).and_then(|verdicts| verdicts.failed);
            let why = if known.hash != container.hash() && !known.hash.is_empty() {
                Some((format!("Container {} definition changed", container.name()), true))
            } else {
                probe.map(|probe| (format!("Container {} failed {probe} probe", container.name()), restarts))
            };
            let Some((mut message, restart)) = why.or_else(|| resize(observed, container, known, plan)) else { return };
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
        // Made and never started: whoever was to start it is gone.
        State::Created => start(observed, container, plan),
        State::Unknown => {
            if container.restarts_after(pod, observed::UNKNOWN_EXIT.into()) {
                start(observed, container, plan);
            }
        }
    }
}

/// Has a container changed in place, unless it wants to start again for it.
fn resize(
    observed: &Observed<'_>,
    container: Container<'_>,
    known: &observed::Container,
    plan: &mut PodPlan,
) -> Option<(String, bool)> {
    let actual = known.resources.as_ref().filter(|_| container.role != Role::Ephemeral)?;
    // Scores are not changed in place, so that the node's memory does not matter here.
    let wanted = resources::of_container(observed.pod, container, 1);
    let names = resources::differences(&wanted, actual);
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

/// Starts a container unless something else is being started or it is to be left alone for a while.
fn start(observed: &Observed<'_>, container: Container<'_>, plan: &mut PodPlan) {
    let Observed { pod, runtime, local, now } = *observed;
    let known = runtime.latest(container.name());
    let after = known.and_then(observed::Container::exit).map(|exit| exit.finished_at);
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
        // The runtime may have lost what the API server still knows.
        None => counted.filter(|count| *count > 0).map_or(0, |count| count + 1),
    };
    plan.actions.push(Action::Start { name: container.name().to_owned(), attempt, after });
}

impl PodPlan {
    pub(crate) fn wake(&mut self, at: Time) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }
}

/// One stable line: the log entry, the debug output and the expectation of tests.
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
