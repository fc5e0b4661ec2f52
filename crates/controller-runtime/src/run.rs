//! Controller loop: processes keys of changes, each key sequentially and several keys concurrently, with retries.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use apimachinery::{GroupResource, Key, Value, value};
use client::backoff::Backoff;
use client::cache::{ChangeQueue, ChangedKeys};
use client::{Client, Error, ListOptions, Target, WriteOptions};
use component_base::clock;
use component_base::spans;
use controller::{Action, Answers, Controller, Perform, Plan, Rejection, ServerQuery, Setup, SideEffect, decide};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument;

use crate::caches::Caches;
use crate::driver::Driver;
use crate::effect::Effect;
use crate::execute::{execute, execute_after};
use crate::queue::{Outcome, Queue};

/// Maximum changed keys that are remembered. If there are more, all keys are processed.
pub(crate) const NOTICES_MAX: usize = 100_000;
/// Maximum rounds of requests for one decision.
const QUERY_ROUNDS_MAX: usize = 4;
/// Time to wait for a lagging cache before the server is queried instead. A change in transit arrives much earlier.
/// Without changes a cache advances only with bookmarks, which the API server sends once a minute.
const LATE_MAX: Duration = Duration::from_millis(100);
/// Maximum concurrent actions of one plan.
const ACTIONS_MAX: usize = 64;
/// Concurrent keys per worker. A worker is used only for the decision, not while waiting for the server, so that a slow
/// write delays only its own key. A controller with a single worker processes its keys sequentially.
const KEYS_PER_WORKER: usize = 8;
/// Upstream's back-off after a failure.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(5), max: Duration::from_secs(1000) };

/// Throttling of a key: REST times the duration of its decision, so that it uses at most 5 % of a CPU. Decisions
/// shorter than REST_FROM are not throttled. REST_MAX limits the delay.
const REST: u32 = 19;
const REST_FROM: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_millis(100);

/// The result of processing one key.
pub(crate) struct ReconcileResult {
    pub outcome: Outcome,
    /// The duration of the decision, for throttling.
    pub took: Duration,
    pub effects: Vec<Effect>,
    pub rejection: Option<Rejection>,
    pub remember: Option<Value>,
}

/// The state of a key between two decisions.
#[derive(Default)]
pub(crate) struct Memory {
    pub effects: Vec<Effect>,
    pub rejection: Option<Rejection>,
    pub remember: Option<Value>,
}

/// The concurrency limits of one controller.
pub(crate) struct Limits {
    decisions: Semaphore,
    requests: Semaphore,
}

impl Limits {
    fn new(workers: usize) -> Self {
        Self { decisions: Semaphore::new(workers), requests: Semaphore::new(workers.saturating_mul(ACTIONS_MAX)) }
    }

    /// Waits for a worker, which is released when the permit is dropped.
    pub(crate) async fn worker(&self) -> SemaphorePermit<'_> {
        self.decisions.acquire().await.expect("it is never closed")
    }
}

/// Runs a controller with `workers` concurrent decisions, forever. Drop the future to stop it, between two actions or
/// during one.
pub async fn run<C: Controller>(driver: Arc<Driver>, setup: Arc<Setup<C>>, workers: usize) {
    let notices = ChangeQueue::new(NOTICES_MAX);
    if driver.caches.synced(C::READS).await.is_err() {
        return;
    }
    for kind in C::READS {
        subscribe::<C>(&driver.caches, *kind, &notices);
    }
    let mut work = Loop::new(C::NAME, workers);
    loop {
        work.start_ready(|key, memory, limits| {
            reconcile_key::<C>(Arc::clone(&driver), Arc::clone(&setup), limits, key, memory)
        });
        match work.turn(&notices).await {
            Some(ChangedKeys::Keys(keys)) => keys.into_iter().for_each(|key| work.add(key)),
            Some(ChangedKeys::All) => {
                let cache = driver.caches.view(C::READS);
                cache.of(C::READS[0]).iter().for_each(|entry| work.add(entry.key.clone()));
            }
            None => {}
        }
    }
}

/// The keys of one controller: the queue, the running keys, and their state.
pub(crate) struct Loop {
    name: &'static str,
    keys_max: usize,
    limits: Arc<Limits>,
    queue: Queue,
    running: JoinSet<ReconcileResult>,
    keys: HashMap<Id, Key>,
    memories: HashMap<Key, Memory>,
}

impl Loop {
    pub(crate) fn new(name: &'static str, workers: usize) -> Self {
        let workers = workers.max(1);
        Self {
            name,
            keys_max: if workers == 1 { 1 } else { workers.saturating_mul(KEYS_PER_WORKER) },
            limits: Arc::new(Limits::new(workers)),
            queue: Queue::new(BACKOFF),
            running: JoinSet::new(),
            keys: HashMap::new(),
            memories: HashMap::new(),
        }
    }

    /// Starts ready keys up to the concurrency limit.
    pub(crate) fn start_ready<F>(&mut self, reconcile: impl Fn(Key, Memory, Arc<Limits>) -> F)
    where
        F: Future<Output = ReconcileResult> + Send + 'static,
    {
        while self.running.len() < self.keys_max
            && let Some(key) = self.queue.take(Instant::now())
        {
            let memory = self.memories.remove(&key).unwrap_or_default();
            let span = spans::controller_key(self.name, &key);
            let task = self.running.spawn(reconcile(key.clone(), memory, Arc::clone(&self.limits)).instrument(span));
            self.keys.insert(task.id(), key);
        }
    }

    /// Waits for an event. Returns the changed keys, if that is the event.
    pub(crate) async fn turn(&mut self, notices: &ChangeQueue) -> Option<ChangedKeys> {
        let next_wake = self.queue.next_wake();
        tokio::select! {
            changed = notices.take() => return Some(changed),
            Some(finished) = self.running.join_next_with_id() => self.finish(finished),
            () = wake_at(next_wake) => {}
        }
        None
    }

    pub(crate) fn add(&mut self, key: Key) {
        self.queue.add(key);
    }

    fn finish(&mut self, finished: Result<(Id, ReconcileResult), JoinError>) {
        let (id, finished) = match finished {
            Ok((id, finished)) => (id, finished),
            // Panics of decisions are caught earlier: this is a bug of the driver, and affects one key only.
            Err(error) => {
                tracing::error!(controller = self.name, error = %error, "the task of a key failed; retrying");
                let nothing = ReconcileResult {
                    outcome: Outcome::Failed,
                    took: Duration::ZERO,
                    effects: Vec::new(),
                    rejection: None,
                    remember: None,
                };
                (error.id(), nothing)
            }
        };
        let Some(key) = self.keys.remove(&id) else { return };
        let (outcome, took) = (finished.outcome, finished.took);
        if !finished.effects.is_empty() || finished.rejection.is_some() || finished.remember.is_some() {
            let ReconcileResult { effects, rejection, remember, .. } = finished;
            let memory = Memory { effects, rejection, remember };
            self.memories.insert(key.clone(), memory);
        }
        self.queue.done(&key, outcome, rest(took), Instant::now(), client::backoff::random());
    }
}

/// Whether an action is more than a status update or an event.
const fn is_work(action: &Action) -> bool {
    !matches!(action, Action::UpdateStatus { .. } | Action::Event { .. })
}

fn rest(took: Duration) -> Duration {
    if took < REST_FROM { Duration::ZERO } else { (took * REST).min(REST_MAX) }
}

/// Adds the keys that each change of a kind affects to `notices`. A panic of the controller's code does not stop the
/// watch.
fn subscribe<C: Controller>(caches: &Arc<Caches>, kind: GroupResource, notices: &ChangeQueue) {
    let Some(reader) = caches.reader(kind) else { return };
    let caches = Arc::downgrade(caches);
    reader.subscribe(notices, move |change, keys| {
        let Some(caches) = caches.upgrade() else { return };
        if let (Some(old), Some(new)) = (change.old, change.new)
            && catch_unwind(AssertUnwindSafe(|| !C::is_relevant_change(kind, old, new))).unwrap_or(false)
        {
            return;
        }
        let view = caches.view(C::READS);
        for object in [change.old, change.new].into_iter().flatten() {
            let before = keys.len();
            if catch_unwind(AssertUnwindSafe(|| C::affected_keys(&view, kind, object, keys))).is_err() {
                keys.truncate(before);
                tracing::error!(controller = C::NAME, %kind, key = %change.key, "the controller panicked on a change");
            }
        }
    });
}

/// Processes one key after the caches contain its earlier writes, and executes the plan.
async fn reconcile_key<C: Controller>(
    driver: Arc<Driver>,
    setup: Arc<Setup<C>>,
    limits: Arc<Limits>,
    key: Key,
    memory: Memory,
) -> ReconcileResult {
    for effect in &memory.effects {
        driver.caches.seen(effect).await;
    }
    let Memory { rejection, remember, .. } = memory;
    let responses = send_queries::<C>(&driver, &key, remember.as_ref()).await;
    let worker = limits.worker().await;
    let started = Instant::now();
    let decided = catch_unwind(AssertUnwindSafe(|| {
        let view = driver
            .caches
            .view(C::READS)
            .with_rejection(rejection.clone())
            .reminded(remember.clone())
            .with_responses(responses);
        decide::<C>(&view, &setup.config, &key, clock::now())
    }));
    drop(worker);
    let Ok(plan) = decided else {
        tracing::error!("the controller panicked; retrying the key later");
        return ReconcileResult {
            outcome: Outcome::Failed,
            took: Duration::ZERO,
            effects: Vec::new(),
            rejection,
            remember,
        };
    };
    // A plan with work is not throttled. Only repeated decisions without work are.
    let took = if plan.steps().any(|(action, _)| is_work(action)) { Duration::ZERO } else { started.elapsed() };
    if let Some(reason) = &plan.waiting {
        tracing::debug!(reason, "waiting");
    }
    let (effects, failure) = execute_plan(&driver, &limits, &setup.perform, &plan).await;
    match failure {
        None => {
            let outcome = Outcome::Done(plan.wake_at.map(clock::instant));
            ReconcileResult { outcome, took, effects, rejection: None, remember: plan.remember }
        }
        Some(failure) => {
            ReconcileResult { outcome: Outcome::Failed, took, effects, rejection: failure.or(rejection), remember }
        }
    }
}

/// Sends the controller's requests for data that is not cached.
async fn send_queries<C: Controller>(driver: &Driver, key: &Key, remember: Option<&Value>) -> Answers {
    let mut responses = Answers::default();
    for _ in 0..QUERY_ROUNDS_MAX {
        let view = || driver.caches.view(C::READS).reminded(remember.cloned()).with_responses(responses.clone());
        let queries = catch_unwind(AssertUnwindSafe(|| C::queries(&view(), key, clock::now()))).unwrap_or_default();
        let open: Vec<ServerQuery> = queries.into_iter().filter(|query| responses.of(query).is_none()).collect();
        if open.is_empty() {
            break;
        }
        for query in open {
            if let Some(revision) = query.as_of
                && has_caught_up(&driver.caches, &query, revision).await
            {
                continue;
            }
            let response = fetch(&driver.client, &query).await;
            responses.insert(&query, response.map_err(|error| error.to_string()));
        }
    }
    responses
}

/// Waits up to [`LATE_MAX`] for the kind's cache to reach the revision, and returns whether it did.
async fn has_caught_up(caches: &Caches, query: &ServerQuery, revision: u64) -> bool {
    let Some(reader) = caches.reader_of(&query.resource) else { return false };
    tokio::time::timeout(LATE_MAX, reader.reached(revision)).await.is_ok_and(|reached| reached.is_ok())
}

async fn fetch(client: &Client, query: &ServerQuery) -> Result<Value, Error> {
    let target = Target::object(&query.resource, &query.key).subresource(query.subresource.clone());
    if let Some(body) = &query.body {
        return client.create(&target, body, &WriteOptions::default()).await;
    }
    let Some(labels) = &query.labels else { return client.get(&target).await };
    let options = ListOptions { label_selector: labels.clone(), ..ListOptions::default() };
    let list = client.list(&target, &options).await?;
    Ok(value!({"items": (list.items)}))
}

/// Executes the actions of a plan with slow start: concurrency grows by one per success. After a rejection the
/// remaining actions on the same resource are skipped; others, such as the status update, still run. After a transport
/// error the plan is aborted. Returns the effects, and `Some` if an action failed, with the rejection if the server
/// reported one.
pub(crate) async fn execute_plan<E: SideEffect>(
    driver: &Arc<Driver>,
    limits: &Arc<Limits>,
    perform: &Perform<E>,
    plan: &Plan<E>,
) -> (Vec<Effect>, Option<Option<Rejection>>) {
    let mut effects = Vec::new();
    let mut failure: Option<Option<Rejection>> = None;
    let mut rejected_writes: BTreeSet<String> = BTreeSet::new();
    let mut silent = false;
    let mut steps = plan.steps();
    let mut under_way = JoinSet::new();
    let mut at_once_max = 1;
    loop {
        while !silent && under_way.len() < at_once_max {
            let is_open = |action: &Action| rejected_writes.is_empty() || !rejected_writes.contains(&action.writes());
            let Some((action, after)) = steps.by_ref().find(|(action, _)| is_open(action)) else { break };
            tracing::debug!(%action, side_effect = after.map(|it| tracing::field::display(&it.effect)), "executing an action");
            let (driver, limits, perform) = (Arc::clone(driver), Arc::clone(limits), Perform::clone(perform));
            let (action, after) = (action.clone(), after.cloned());
            let task = async move {
                let _request = limits.requests.acquire().await.expect("it is never closed");
                let done = match &after {
                    None => execute(&driver, &action).await,
                    Some(after) => execute_after(&driver, &perform, after).await,
                };
                (action, done)
            };
            under_way.spawn(task.in_current_span());
        }
        let Some(done) = under_way.join_next().await else { return (effects, failure) };
        match done {
            Ok((_, Ok(effect))) => {
                effects.extend(effect);
                at_once_max = (at_once_max + 1).min(ACTIONS_MAX);
            }
            Ok((action, Err(error))) => {
                let client_error = error.client_error();
                // A conflict is expected: the key is reconciled again with the object's newer version.
                if client_error.is_some_and(|error| error.is_conflict() || error.is_already_exists()) {
                    tracing::debug!(%action, %error, "action conflicted");
                } else {
                    tracing::info!(%action, %error, "action failed");
                }
                silent |= client_error.is_none_or(|error| error.status().is_none());
                rejected_writes.insert(action.writes());
                let rejection = client_error.and_then(|error| to_rejection(&action, error));
                failure = Some(failure.flatten().or(rejection));
            }
            Err(_) => (failure, silent) = (Some(failure.flatten()), true),
        }
    }
}

/// Returns the rejection to report to the controller. Conflicts and transport errors are not reported.
fn to_rejection(action: &Action, error: &Error) -> Option<Rejection> {
    let status = error.status().filter(|_| !error.is_conflict() && !error.is_already_exists())?;
    let (resource, subresource) = action.target();
    Some(Rejection {
        resource: resource.clone(),
        subresource,
        create: matches!(action, Action::Create { .. }),
        reason: status.reason.name().to_owned(),
        message: status.message.clone(),
    })
}

async fn wake_at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
