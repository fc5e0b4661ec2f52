//! Pod worker: observes, plans, executes and reports one pod, and sleeps until something changes.

mod images;
mod kill;
mod report;
mod start;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use apimachinery::Value;
use apimachinery::time::{Duration, Time};
use component_base::clock;
use controller::EventType;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::backoff::Backoffs;
use crate::blocking;
use crate::context::Context;
use crate::plan::{self, Action, Cause, Ending, Local, Observation, PodPlan, Resizing, Waiting};
use crate::pod::Pod;
use crate::probe::{self, ProbeResult, Prober};
use crate::resize::Pending;
use crate::runtime_status::{self, RuntimePod, State};
use crate::status;
use crate::volumes::Tokens;
use report::Report;
use tracing::Instrument;

/// Delay before a failed operation of the runtime or of a volume is retried.
const RETRY: Duration = Duration::from_seconds(10);
/// Capacity of the channels of probe results and of task messages.
const VERDICTS_MAX: usize = 64;

/// The desired state of a pod.
#[derive(Clone, Debug)]
pub(crate) struct DesiredPod {
    pub pod: Arc<Value>,
    /// The mirror pod of a static pod.
    pub mirror: Option<Arc<Value>>,
    /// The pod no longer exists in the API server: its containers terminate without a status report.
    pub deleted: bool,
    /// Cause and grace period if the node terminates the pod.
    pub end: Option<(Cause, i64)>,
    /// The pending resize, if any.
    pub resize: Option<Pending>,
}

/// Notifications that wake a worker, other than a new desired state.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    /// The runtime sent an event.
    pub runtime: Notify,
    /// An object that the pod refers to changed.
    pub objects: Notify,
    /// Set by the worker when the pod has terminated and none of its containers run.
    pub quiet: watch::Sender<bool>,
}

struct Worker {
    context: Arc<Context>,
    uid: String,
    pod: Arc<Value>,
    mirror: Option<Arc<Value>>,
    deleted: bool,
    runtime: RuntimePod,
    local: Local,
    image_backoffs: Backoffs,
    image_failures: BTreeMap<String, Time>,
    /// Time at which the runtime is next queried for images whose pulls failed.
    images_polled_at: Option<Time>,
    /// Exit times by container name for which a BackOff event was recorded.
    crashes: BTreeMap<String, Time>,
    tokens: Arc<tokio::sync::Mutex<Tokens>>,
    refresh_at: Option<Time>,
    refreshing: bool,
    cleaned: bool,
    /// The pod has terminated and none of its containers run.
    quiet: bool,
    /// The status that was reported last.
    reported_status: Value,
    tasks: JoinSet<TaskResult>,
    messages: (mpsc::Sender<Message>, mpsc::Receiver<Message>),
    verdicts: (mpsc::Sender<ProbeResult>, mpsc::Receiver<ProbeResult>),
    probers: BTreeMap<(String, probe::Kind), AbortHandle>,
    reports: watch::Sender<Option<Report>>,
    /// Notifies starting containers that the pod must terminate.
    ending: watch::Sender<bool>,
}

/// The result of a worker's task.
enum TaskResult {
    /// A sandbox was created or failed.
    Sandbox(Result<(), Waiting>),
    /// All containers were started or failed; messages report the outcome of each.
    Started,
    /// A container was killed.
    Killed(String),
    /// A container was resized or failed.
    Resized(String, Result<(), String>),
    /// A sandbox was stopped.
    Stopped,
    /// Volumes were updated or failed; the time of the next update.
    Refreshed(Option<Time>),
}

/// Progress of a running task.
enum Message {
    Started { name: String },
    Failed { name: String, reason: String, message: String, image: Option<String> },
    VolumesAt(Option<Time>),
}

/// Manages a pod until it is removed.
pub(crate) async fn run(context: Arc<Context>, mut desired: watch::Receiver<DesiredPod>, wakers: Arc<Wakers>) {
    let first = desired.borrow_and_update().clone();
    let uid = Pod(&first.pod).uid().to_owned();
    let (reports, written) = watch::channel(None);
    let writing = tokio::spawn(report::write_all(context.client.clone(), written).in_current_span()).abort_handle();
    let longest = i64::try_from(context.config.crash_loop_max.as_nanos()).unwrap_or(i64::MAX);
    let backoffs = Backoffs::new(Duration::from_nanos(longest));
    let mut worker = Worker {
        uid,
        pod: Arc::clone(&first.pod),
        mirror: None,
        deleted: false,
        runtime: RuntimePod::default(),
        local: Local { backoffs, ..Local::default() },
        image_backoffs: Backoffs::default(),
        image_failures: BTreeMap::new(),
        images_polled_at: None,
        crashes: BTreeMap::new(),
        tokens: Arc::default(),
        refresh_at: None,
        refreshing: false,
        cleaned: false,
        quiet: false,
        reported_status: Value::Null,
        tasks: JoinSet::new(),
        messages: mpsc::channel(VERDICTS_MAX),
        verdicts: mpsc::channel(VERDICTS_MAX),
        probers: BTreeMap::new(),
        reports,
        ending: watch::Sender::new(false),
        context,
    };
    worker.apply_desired(first);
    loop {
        let wake_at = worker.step().await;
        wakers.quiet.send_if_modified(|known| std::mem::replace(known, worker.quiet) != worker.quiet);
        if worker.deleted && worker.cleaned {
            break;
        }
        worker.wait(&mut desired, &wakers, wake_at).await;
    }
    for prober in worker.probers.values() {
        prober.abort();
    }
    worker.context.objects.remove_pod(&worker.uid);
    worker.context.probes.remove(&worker.uid);
    writing.abort();
}

impl Worker {
    fn pod(&self) -> Pod<'_> {
        Pod(&self.pod)
    }

    /// Applies a new desired state.
    fn apply_desired(&mut self, desired: DesiredPod) {
        let now = clock::now();
        let known = desired.mirror.as_ref().filter(|mirror| !Pod(mirror).is_terminal() || self.local.ending.is_some());
        if downward_api_changed(Pod(&self.pod), Pod(&desired.pod)) {
            self.refresh_at = Some(now);
        }
        self.pod = match known {
            // A static pod has the status of its mirror pod, unless that is terminal from an earlier run: a static pod
            // starts again.
            Some(mirror) => {
                let mut pod = (*desired.pod).clone();
                if let (Some(pod), Some(status)) = (pod.as_object_mut(), mirror.get("status")) {
                    pod.insert("status", status.clone());
                }
                Arc::new(pod)
            }
            None => desired.pod,
        };
        self.mirror = desired.mirror;
        self.local.resize = desired.resize;
        self.deleted |= desired.deleted;
        let pod = Pod(&self.pod);
        let meta = pod.meta();
        let ending = if self.deleted || meta.is_deleting() {
            let requested = meta.deletion_grace_period_seconds().unwrap_or(pod.grace_seconds());
            let since = self.local.ending.as_ref().map_or(now, |ending| ending.since);
            // Containers always get at least one second.
            Some(Ending { cause: Cause::Deleted, since, grace_seconds: requested.max(1) })
        } else if let Some((cause, grace_seconds)) = desired.end {
            Some(Ending { cause, since: now, grace_seconds })
        } else if pod.is_terminal() {
            Some(Ending { cause: Cause::Completed, since: now, grace_seconds: pod.grace_seconds() })
        } else {
            None
        };
        match (&mut self.local.ending, ending) {
            (None, Some(ending)) => self.local.ending = Some(ending),
            // The grace period only becomes shorter. A failed pod stays failed until it is deleted.
            (Some(known), Some(ending)) => {
                known.grace_seconds = known.grace_seconds.min(ending.grace_seconds);
                if ending.cause == Cause::Deleted && known.cause == Cause::Completed {
                    known.cause = Cause::Deleted;
                }
            }
            (_, None) => {}
        }
    }

    /// Whether the pod must be removed, not only terminated.
    fn is_leaving(&self) -> bool {
        self.deleted || self.pod().meta().is_deleting()
    }

    /// Runs one iteration. Returns the time of the next one.
    async fn step(&mut self) -> Option<Time> {
        match self.context.runtime.observe(&self.uid).await {
            Ok(runtime) => self.runtime = runtime,
            Err(status) => {
                tracing::warn!(status = status.message(), "failed to query the runtime");
                return Some(clock::now().plus(RETRY));
            }
        }
        self.prune_memory();
        if self.local.ending.is_none() {
            self.context.objects.follow(Pod(&self.pod));
        }
        self.probe();
        let mut wake_at = earliest(self.notice_images().await, self.report_waiting_images());
        self.record_crash_events();
        let (plan, status) = self.decide();
        if self.local.ending.is_some() {
            self.ending.send_replace(true);
        }
        self.report(status);
        for action in &plan.actions {
            tracing::debug!(%action, "executing an action");
        }
        self.execute(&plan);
        self.quiet = plan.done;
        if plan.done {
            self.finish().await;
        }
        if plan.done && !self.cleaned {
            wake_at = earliest(wake_at, Some(clock::now().plus(RETRY)));
        }
        wake_at = earliest(wake_at, plan.wake_at);
        earliest(wake_at, self.refresh())
    }

    /// Returns the plan and the status; starts the termination of a pod that completed.
    fn decide(&mut self) -> (PodPlan, Value) {
        loop {
            let observed = Observation {
                pod: Pod(&self.pod),
                runtime: &self.runtime,
                local: &self.local,
                unenforced: self.context.groups.unenforced(),
                now: clock::now(),
            };
            let plan = plan::plan(&observed);
            let mut status = status::status(&observed, &self.context.facts);
            status::keep_times(&mut status, &self.reported_status);
            for reported_status in [&self.pod["status"], &self.reported_status] {
                status::keep_ends(&mut status, observed.pod, reported_status);
            }
            let (now, grace_seconds) = (observed.now, observed.pod.grace_seconds());
            let cause = match &plan.end {
                Some(cause) => cause.clone(),
                None if self.local.ending.is_none() && status::is_over(&observed, &self.context.facts) => {
                    Cause::Completed
                }
                None => {
                    self.reported_status = status.clone();
                    return (plan, status);
                }
            };
            if let Cause::Failed { reason, message } = &cause {
                self.context.event_sink(Pod(&self.pod)).pod(EventType::Normal, reason, message);
            }
            self.local.ending = Some(Ending { cause, since: now, grace_seconds });
        }
    }

    /// Drops memory of containers that no longer exist.
    fn prune_memory(&mut self) {
        let runtime = &self.runtime;
        let runs = |id: &String| runtime.running().any(|container| container.id == *id);
        let exists = |id: &String| runtime.containers.iter().any(|container| container.id == *id);
        self.local.killing.retain(|id, _| runs(id));
        self.local.probes.retain(|id, _| runs(id));
        self.local.resizing.retain(|id, _| runs(id));
        self.local.forced.retain(exists);
        self.probers.retain(|(id, _), task| {
            let keep = runs(id);
            if !keep {
                task.abort();
            }
            keep
        });
    }

    /// Starts the probes of running containers; liveness and readiness probes start after the startup probe.
    fn probe(&mut self) {
        if self.local.ending.is_some() {
            // A terminating pod keeps only its readiness probes.
            self.probers.retain(|(_, kind), task| {
                let keep = *kind == probe::Kind::Readiness;
                if !keep {
                    task.abort();
                }
                keep
            });
            return;
        }
        let sandbox = self.runtime.sandbox();
        let host = self.context.facts.host_ips.first();
        let pod_ip = match self.pod().flag("hostNetwork") {
            true => host.cloned(),
            false => sandbox.and_then(|sandbox| sandbox.ips.first().cloned()),
        };
        let (mut started, now) = (Vec::new(), clock::now());
        for known in self.runtime.running() {
            let Some(container) = Pod(&self.pod).container(&known.name) else { continue };
            let verdicts = self.local.probes.get(&known.id).cloned().unwrap_or_default();
            for kind in probe::Kind::ALL {
                let has = |kind: probe::Kind| container.spec.get(kind.field()).is_some_and(|probe| !probe.is_null());
                let waits = kind != probe::Kind::Startup && has(probe::Kind::Startup) && verdicts.started != Some(true);
                let done = kind == probe::Kind::Startup && verdicts.started == Some(true);
                if has(kind) && !waits && !done && !self.probers.contains_key(&(known.id.clone(), kind)) {
                    let prober = Prober {
                        kind,
                        id: known.id.clone(),
                        spec: container.spec.clone(),
                        role: container.role,
                        age: age(known, now),
                        pod_ip: pod_ip.clone().unwrap_or_default(),
                        runtime: self.context.runtime.clone(),
                        results: self.context.probes.of(Pod(&self.pod), &known.name, kind),
                        event_sink: self.context.event_sink(Pod(&self.pod)),
                        verdicts: self.verdicts.0.clone(),
                    };
                    started
                        .push(((known.id.clone(), kind), tokio::spawn(prober.run().in_current_span()).abort_handle()));
                }
            }
        }
        self.probers.extend(started);
    }

    fn apply_probe_result(&mut self, verdict: &ProbeResult) {
        let Some(known) = self.runtime.running().find(|container| container.id == verdict.id) else { return };
        let verdicts = self.local.probes.entry(known.id.clone()).or_default();
        match (verdict.kind, verdict.success) {
            (probe::Kind::Startup, true) => verdicts.started = Some(true),
            (probe::Kind::Startup, false) => verdicts.failed = Some("startup"),
            (probe::Kind::Liveness, false) => verdicts.failed = Some("liveness"),
            (probe::Kind::Liveness, true) => {}
            (probe::Kind::Readiness, success) => verdicts.ready = Some(success),
        }
    }

    fn execute(&mut self, plan: &PodPlan) {
        let mut starts = Vec::new();
        for action in &plan.actions {
            match action {
                Action::CreateSandbox { attempt } => self.create_sandbox(*attempt),
                Action::StopSandbox { id } => {
                    let (runtime, id) = (self.context.runtime.clone(), id.clone());
                    let task = async move {
                        let request = node_api::cri::v1::StopPodSandboxRequest { pod_sandbox_id: id.clone() };
                        if let Err(status) = runtime.runtime.clone().stop_pod_sandbox(request).await {
                            tracing::warn!(id, status = status.message(), "failed to stop a sandbox");
                            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
                        }
                        TaskResult::Stopped
                    };
                    self.tasks.spawn(task.in_current_span());
                }
                Action::Resize { id, name } => self.resize(id, name),
                Action::Remove { id } => self.remove(id),
                Action::Start { name, attempt, after } => {
                    if let Some(after) = after {
                        self.local.backoffs.tried(name, *after, clock::now());
                    }
                    starts.push((name.clone(), *attempt));
                }
                Action::Kill { id, name, grace_seconds, message, restart, hook } => {
                    self.kill(id, name, kill::Manner { grace_seconds: *grace_seconds, message, hook: *hook });
                    if *restart {
                        self.local.forced.insert(id.clone());
                    }
                }
            }
        }
        if !starts.is_empty() {
            self.start(starts);
        }
    }

    /// Starts the removal of a container and its log.
    fn remove(&mut self, id: &str) {
        let (context, container_id) = (Arc::clone(&self.context), id.to_owned());
        let log = self.runtime.containers.iter().find(|known| known.id == id).map(|known| known.log_path.clone());
        let task = async move {
            let request = node_api::cri::v1::RemoveContainerRequest { container_id };
            // After a failure, the next plan removes the container again.
            if context.runtime.runtime.clone().remove_container(request).await.is_ok()
                && let Some(log) = log
            {
                blocking::in_place(|| context.logs.remove_one(Path::new(&log)));
            }
            TaskResult::Stopped
        };
        self.tasks.spawn(task.in_current_span());
    }

    fn report(&mut self, status: Value) {
        let pod = match (&self.mirror, self.pod().is_static()) {
            (Some(mirror), _) => Arc::clone(mirror),
            (None, true) => return,
            (None, false) => Arc::clone(&self.pod),
        };
        if self.deleted {
            return;
        }
        let report = Report { pod, status, delete: false };
        self.reports.send_if_modified(|known| {
            let is_newer = known.as_ref().is_none_or(|known| known.is_older_than(&report));
            if is_newer {
                *known = Some(report);
            }
            is_newer
        });
    }

    /// Releases the resources of a terminated pod, and deletes the pod if it must be removed.
    async fn finish(&mut self) {
        if !self.cleaned || self.is_leaving() {
            self.cleaned = self.clean_up().await;
        }
        if self.cleaned && self.is_leaving() && !self.deleted && !self.pod().is_static() {
            self.reports.send_if_modified(|report| match report {
                Some(report) if !report.delete => {
                    report.delete = true;
                    true
                }
                _ => false,
            });
        }
    }

    /// Returns whether everything was removed.
    async fn clean_up(&mut self) -> bool {
        let (pod, context) = (Arc::clone(&self.pod), Arc::clone(&self.context));
        let pod = Pod(&pod);
        if self.is_leaving() {
            for sandbox in &self.runtime.sandboxes {
                if let Err(status) = context.runtime.remove_sandbox(&sandbox.id).await {
                    tracing::warn!(status = status.message(), "failed to remove a sandbox");
                    return false;
                }
            }
            blocking::in_place(|| context.logs.remove_all(pod));
        }
        if let Err(error) = context.claims.unprepare(pod.uid()).await {
            tracing::warn!(%error, "failed to unprepare resource claims");
            return false;
        }
        if context.config.cgroups_per_qos
            && let Err(error) = blocking::in_place(|| context.groups.remove(pod))
        {
            tracing::warn!(%error, "failed to remove the pod's cgroup");
        }
        // The directory is removed last: while it exists, a restarted kubelet knows that the pod ran here.
        let removed = match self.is_leaving() {
            true => context.volumes.remove(pod.uid()).await,
            false => context.volumes.release(pod.uid()).await,
        };
        if let Err(error) = removed {
            tracing::warn!(error = error.describe(), "failed to remove the pod's volumes");
            return false;
        }
        true
    }

    /// Records one BackOff event per exit of a crash-looping container.
    fn record_crash_events(&mut self) {
        if self.local.ending.is_some() {
            return;
        }
        let pod = Pod(&self.pod);
        for container in pod.containers() {
            let exit = self.runtime.latest(container.name()).and_then(|known| known.exit());
            let Some(exit) = exit.filter(|exit| container.restarts_after(pod, exit.code.into())) else { continue };
            let waits = self.local.backoffs.waiting(container.name(), exit.finished_at, clock::now()).is_some();
            if waits && self.crashes.get(container.name()) != Some(&exit.finished_at) {
                self.crashes.insert(container.name().to_owned(), exit.finished_at);
                let message =
                    format!("Back-off restarting failed container {} in pod {}", container.name(), pod.described());
                self.context.event_sink(pod).container(container, EventType::Warning, "BackOff", &message);
            }
        }
    }

    fn handle_message(&mut self, message: Message) {
        let now = clock::now();
        match message {
            Message::Started { name } => {
                self.local.waiting.remove(&name);
                self.image_failures.remove(&name);
            }
            // An update that is already due stays due: it may have a newer cause.
            Message::VolumesAt(at) => self.refresh_at = self.refresh_at.filter(|known| *known <= now).or(at),
            Message::Failed { name, reason, message, image } => {
                let mut retry_at = now.plus(RETRY);
                if let Some(image) = image {
                    self.image_backoffs.tried(&image, now, now);
                    retry_at = self.image_backoffs.waiting(&image, now, now).map_or(retry_at, |(_, until)| until);
                    self.image_failures.insert(name.clone(), now);
                }
                self.local.waiting.insert(name, Waiting { reason, message, retry_at });
            }
        }
    }

    fn done(&mut self, done: TaskResult) {
        match done {
            TaskResult::Sandbox(outcome) => {
                self.local.starting = false;
                self.local.sandbox_failure = outcome.err();
            }
            TaskResult::Started => self.local.starting = false,
            TaskResult::Killed(id) => drop(self.local.killing.remove(&id)),
            TaskResult::Resized(id, Ok(())) => drop(self.local.resizing.remove(&id)),
            TaskResult::Resized(id, Err(problem)) => {
                let retry_at = clock::now().plus(RETRY);
                self.local.resizing.insert(id, Resizing { retry_at, problem: Some(problem) });
            }
            TaskResult::Stopped => {}
            TaskResult::Refreshed(at) => {
                self.refreshing = false;
                self.refresh_at = earliest(self.refresh_at, at);
            }
        }
    }

    async fn wait(&mut self, desired: &mut watch::Receiver<DesiredPod>, wakers: &Wakers, wake_at: Option<Time>) {
        let timer = async {
            match wake_at {
                Some(at) => tokio::time::sleep_until(clock::instant(at)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = desired.changed() => match changed {
                Ok(()) => {
                    let update = desired.borrow_and_update().clone();
                    self.apply_desired(update);
                }
                // The kubelet is stopping; pods keep running.
                Err(_) => std::future::pending().await,
            },
            () = wakers.runtime.notified() => {}
            () = wakers.objects.notified() => {
                // Containers that waited for these objects are retried immediately.
                self.local.waiting.retain(|_, waiting| waiting.reason.contains("Image"));
                self.local.sandbox_failure = None;
                self.refresh_at = Some(clock::now());
            }
            Some(message) = self.messages.1.recv() => self.handle_message(message),
            Some(verdict) = self.verdicts.1.recv() => self.apply_probe_result(&verdict),
            Some(done) = self.tasks.join_next() => match done {
                Ok(done) => self.done(done),
                Err(error) => {
                    tracing::error!(%error, "a task of a pod worker failed");
                    self.local.starting = false;
                    self.refreshing = false;
                }
            },
            () = timer => {}
        }
    }
}

/// Whether downward API volumes may have new content, because metadata or the spec changed.
fn downward_api_changed(before: Pod<'_>, now: Pod<'_>) -> bool {
    let (before, now) = (before.meta(), now.meta());
    before.labels() != now.labels()
        || before.annotations() != now.annotations()
        || before.generation() != now.generation()
}

/// Returns the time since the start of a container.
fn age(container: &runtime_status::Container, now: Time) -> std::time::Duration {
    let State::Running { since } = container.state else { return std::time::Duration::ZERO };
    std::time::Duration::from_nanos(now.since(since).nanos().max(0).unsigned_abs())
}

fn earliest(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    a.into_iter().chain(b).min()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn downward_api_volumes_change_with_metadata_and_spec_but_not_status() {
        let before = value!({"metadata": {"labels": {"a": "1"}, "resourceVersion": "1"}, "status": {}});
        let check = |now: Value, expect: bool| {
            assert_eq!(downward_api_changed(Pod(&before), Pod(&now)), expect, "{now:?}");
        };
        check(
            value!({"metadata": {"labels": {"a": "1"}, "resourceVersion": "2"}, "status": {"phase": "Running"}}),
            false,
        );
        check(value!({"metadata": {"labels": {"a": "2"}}}), true);
        check(value!({"metadata": {"labels": {"a": "1"}, "annotations": {"b": "1"}}}), true);
        check(value!({"metadata": {"labels": {"a": "1"}, "generation": 2}}), true);
        check(value!({"metadata": {}}), true);
    }
}
