//! The scheduler loop that owns the engine: applies changes, schedules pods, and starts requests.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use api::resources::PODS;
use apimachinery::{GroupResource, Key};
use client::Client;
use client::cache::{ChangeQueue, ChangedKeys, ClosedError};
use controller_runtime::Caches;
use futures_util::FutureExt;
use scheduler::devices;
use scheduler::engine::{Engine, Kind, Step, Wait};
use scheduler::profile::Profile;
use scheduler::queue::{Millis, Options};
use scheduler::status::Reason;
use scheduler::storage::Plan;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant};
use tracing::Instrument;

use crate::events::Recorder;
use crate::execute::{Executor, StepResult};
use crate::extenders::Extenders;
use crate::metrics::{Attempt, Metrics};

/// Maximum changed keys kept per kind; beyond that all objects are observed again.
const KEYS_MAX: usize = 100_000;

/// Message for a pod whose binding panicked.
const BROKEN: &str = "the binding task panicked";

/// Configuration of the scheduler loop.
pub struct Config {
    pub profiles: Vec<Profile>,
    pub extenders: Extenders,
    /// Back-off durations of the scheduling queue.
    pub queue: Options,
    /// Maximum concurrent steps.
    pub requests_max: usize,
}

/// The scheduler loop with its dependencies.
pub struct Runner {
    engine: Engine,
    caches: Arc<Caches>,
    executor: Arc<Executor>,
    requests: JoinSet<StepResult>,
    /// Bindings that wait for volumes or devices, possibly for minutes; they do not block other pods.
    claims: JoinSet<StepResult>,
    requests_max: usize,
    metrics: Arc<Metrics>,
    started: Instant,
}

impl Runner {
    /// Returns the resource types that [`Caches`] must watch.
    pub fn reads() -> impl Iterator<Item = GroupResource> {
        Kind::ALL.iter().map(|kind| kind.resource())
    }

    /// Creates a scheduler over these caches. Returns `None` if one of [`Runner::reads`] is not watched.
    pub fn new(
        client: Client,
        caches: Arc<Caches>,
        events: Recorder,
        config: Config,
        metrics: Arc<Metrics>,
    ) -> Option<Self> {
        Self::reads().all(|kind| caches.reader(kind).is_some()).then_some(())?;
        let pods = caches.reader(PODS)?.clone();
        let timeouts = config.profiles.iter().map(|it| (it.scheduler_name.clone(), it.timeouts)).collect();
        Some(Self {
            engine: Engine::new(config.profiles, config.queue).with_extenders(Arc::new(config.extenders.list())),
            executor: Arc::new(Executor {
                client,
                caches: Arc::clone(&caches),
                pods,
                events,
                extenders: config.extenders,
                timeouts,
            }),
            caches,
            requests: JoinSet::new(),
            claims: JoinSet::new(),
            requests_max: config.requests_max.max(1),
            metrics,
            started: Instant::now(),
        })
    }

    /// Schedules pods until the caches stop or the future is dropped.
    pub async fn run(mut self) -> Result<(), ClosedError> {
        for kind in Kind::ALL {
            if let Some(reader) = self.caches.reader(kind.resource()) {
                reader.synced().await?;
            }
        }
        let mut watching = JoinSet::new();
        let mut changes = self.subscribe(&mut watching);
        loop {
            while let Ok((kind, changed)) = changes.try_recv() {
                self.changed(kind, &changed);
            }
            while let Some(done) = self.requests.try_join_next().or_else(|| self.claims.try_join_next()) {
                self.done(done);
            }
            let free = self.requests.len() < self.requests_max;
            if free && let Some(step) = self.engine.step(self.now()) {
                let step = self.call_extenders(step).await;
                step.into_iter().for_each(|step| self.start(step));
                // Allows other tasks, above all requests, to run between two cycles.
                tokio::task::yield_now().await;
                continue;
            }
            self.metrics.pending(self.engine.lengths());
            let wake = self.engine.next_wake().filter(|_| free);
            tokio::select! {
                change = changes.recv() => match change {
                    Some((kind, changed)) => self.changed(kind, &changed),
                    None => return Err(ClosedError),
                },
                Some(done) = self.requests.join_next() => self.done(done),
                Some(done) = self.claims.join_next() => self.done(done),
                () = until(wake.map(|wake| self.started + Duration::from_millis(wake))) => {}
            }
        }
    }

    /// Calls extenders as long as the cycle needs it. The loop waits meanwhile, as upstream does: the results apply to
    /// the cluster state of the call.
    async fn call_extenders(&mut self, mut step: Step) -> Option<Step> {
        while let Step::CallExtenders { pod, question, responses } = step {
            let responses = self.executor.extenders.call(&self.caches, &pod, &question, responses).await;
            step = self.engine.resume(pod, responses, self.now())?;
        }
        Some(step)
    }

    /// Subscribes to changed objects. Initially all existing objects count as changed, nodes before pods.
    fn subscribe(&mut self, watching: &mut JoinSet<()>) -> mpsc::Receiver<(Kind, ChangedKeys)> {
        let (sender, changes) = mpsc::channel(Kind::ALL.len());
        for kind in Kind::ALL {
            let Some(reader) = self.caches.reader(kind.resource()) else { continue };
            let notices = ChangeQueue::new(KEYS_MAX);
            reader.subscribe(&notices, |change, keys| keys.push(change.key.clone()));
            if let Some(changed) = notices.try_take() {
                self.changed(*kind, &changed);
            }
            let sender = sender.clone();
            let task = async move {
                // While the scheduler loop is busy, changed keys accumulate in `notices`, each key once.
                while sender.send((*kind, notices.take().await)).await.is_ok() {}
            };
            watching.spawn(task.in_current_span());
        }
        changes
    }

    fn changed(&mut self, kind: Kind, changed: &ChangedKeys) {
        let Some(reader) = self.caches.reader(kind.resource()) else { return };
        let objects = reader.snapshot().objects;
        let now = self.now();
        let mut observe = |key: &Key| {
            if let Err(error) = self.engine.observe(kind, key, objects.get(key), now) {
                tracing::error!(kind = %kind.resource(), %key, error = %chain(&error), "ignoring an invalid object update");
            }
        };
        match changed {
            ChangedKeys::Keys(keys) => keys.iter().for_each(observe),
            ChangedKeys::All => {
                objects.iter().for_each(|entry| observe(&entry.key));
                for key in self.engine.known(kind).iter().filter(|key| objects.get(key).is_none()) {
                    drop(self.engine.observe(kind, key, None, now));
                }
            }
        }
    }

    fn start(&mut self, step: Step) {
        let executor = Arc::clone(&self.executor);
        match step {
            Step::Bind { pod, node, volumes, devices } => {
                let quick = volumes == Plan::default() && devices == devices::Plan::default();
                let tasks = if quick { &mut self.requests } else { &mut self.claims };
                let claims = devices.reserve.iter().map(|it| it.key.clone()).collect();
                let broken = StepResult::BindFailed(Arc::clone(&pod), BROKEN.to_owned(), claims);
                tasks.spawn(
                    guarded(broken, async move { executor.bind(pod, node, volumes, devices).await }).in_current_span(),
                );
            }
            Step::Wait(wait) => {
                tracing::debug!(pod = %wait.pod.name, message = wait.message, "pod is unschedulable");
                if let Some(preemption) = &wait.preemption {
                    self.metrics.preempted(preemption.victims.len());
                }
                self.metrics.attempted(match wait.reason {
                    Reason::Unschedulable => Attempt::Unschedulable,
                    Reason::SchedulerError => Attempt::Error,
                });
                self.report_wait(wait);
            }
            Step::Skip { pod } => executor.skip(&pod),
            Step::CallExtenders { .. } => unreachable!("extenders were called before"),
        }
    }

    fn report_wait(&mut self, wait: Wait) {
        let executor = Arc::clone(&self.executor);
        let broken = if wait.preemption.is_some() {
            StepResult::PreemptionFailed(Arc::clone(&wait.pod))
        } else {
            StepResult::Reported
        };
        self.requests.spawn(guarded(broken, async move { executor.wait(wait).await }).in_current_span());
    }

    fn done(&mut self, done: Result<StepResult, tokio::task::JoinError>) {
        let now = self.now();
        match done {
            Ok(StepResult::Bound(pod, claims)) => {
                self.metrics.attempted(Attempt::Scheduled);
                self.changed(Kind::ResourceClaims, &ChangedKeys::Keys(claims));
                self.engine.bound(&pod);
            }
            Ok(StepResult::BindFailed(pod, message, claims)) => {
                self.changed(Kind::ResourceClaims, &ChangedKeys::Keys(claims));
                tracing::warn!(namespace = %pod.class.namespace, pod = %pod.name, message, "failed to bind the pod");
                self.metrics.attempted(Attempt::Error);
                if let Some(Step::Wait(wait)) = self.engine.unbound(&pod, message, now) {
                    self.report_wait(wait);
                }
            }
            Ok(StepResult::Reported) => {}
            Ok(StepResult::PreemptionFailed(pod)) => self.engine.not_preempted(&pod, now),
            Err(error) => tracing::error!(%error, "scheduling request task failed"),
        }
    }

    fn now(&self) -> Millis {
        self.started.elapsed().as_millis().try_into().unwrap_or(Millis::MAX)
    }
}

/// Runs requests; returns `broken` if they panic, so that no pod stays assumed forever.
async fn guarded(broken: StepResult, requests: impl Future<Output = StepResult>) -> StepResult {
    AssertUnwindSafe(requests).catch_unwind().await.unwrap_or(broken)
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Formats an error with all its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use apimachinery::value;
    use scheduler::Pod;

    use super::*;

    #[tokio::test]
    async fn panicking_request_counts_as_failed() {
        let pod =
            || Arc::new(Pod::new(&value!({"metadata": {"name": "p", "namespace": "ns"}})).expect("the pod is valid"));
        let broken = || StepResult::BindFailed(pod(), BROKEN.to_owned(), BTreeSet::new());
        let done = guarded(broken(), async { panic!("a mistake") }).await;
        assert!(matches!(done, StepResult::BindFailed(_, message, _) if message == BROKEN));
        assert!(matches!(guarded(broken(), async { StepResult::Reported }).await, StepResult::Reported));
    }
}
