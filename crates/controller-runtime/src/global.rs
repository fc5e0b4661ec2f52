//! Global controller loop: sends the queries that a decision needs, then executes its plan.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use apimachinery::Key;
use client::cache::{ChangeQueue, ChangedKeys};
use component_base::clock;
use controller::no_side_effects;
use controller::object_graph::{Answers, GlobalController, Query, QueryResponse, Step};
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::driver::Driver;
use crate::metadata_caches::MetadataCaches;
use crate::queue::Outcome;
use crate::run::{Limits, Loop, Memory, NOTICES_MAX, ReconcileResult, execute_plan};

/// Maximum rounds of queries about one key before it is retried later.
const ROUNDS_MAX: usize = 8;
/// Maximum concurrent queries.
const QUESTIONS_MAX: usize = 16;

/// Runs a global controller with `workers` concurrent decisions, forever. Drop the future to stop it.
pub async fn run_global<S: GlobalController>(driver: Arc<Driver>, workers: usize) {
    let metadata_caches = driver.caches.metadata_caches().clone();
    // With incomplete metadata every decision would query the server for the missing objects.
    metadata_caches.known().await;
    let notices = ChangeQueue::new(NOTICES_MAX);
    metadata_caches.subscribe::<S>(&notices);
    let mut work = Loop::new(S::NAME, workers);
    loop {
        work.start_ready(|key, memory, limits| {
            reconcile_key::<S>(Arc::clone(&driver), metadata_caches.clone(), limits, key, memory)
        });
        match work.turn(&notices).await {
            Some(ChangedKeys::Keys(keys)) => keys.into_iter().for_each(|key| work.add(key)),
            Some(ChangedKeys::All) => {
                let mut keys = Vec::new();
                for entry in metadata_caches.everything().all() {
                    S::affected_keys(&entry.key, None, Some(&entry.value), &mut keys);
                    S::affected_keys(&entry.key, Some(&entry.value), None, &mut keys);
                }
                keys.into_iter().for_each(|key| work.add(key));
            }
            None => {}
        }
    }
}

/// Processes one key after the caches contain its earlier writes: sends the queries and executes the plan.
async fn reconcile_key<S: GlobalController>(
    driver: Arc<Driver>,
    metadata_caches: MetadataCaches,
    limits: Arc<Limits>,
    key: Key,
    memory: Memory,
) -> ReconcileResult {
    for effect in &memory.effects {
        metadata_caches.seen(effect).await;
    }
    let failed = || ReconcileResult {
        outcome: Outcome::Failed,
        took: Duration::ZERO,
        effects: Vec::new(),
        rejection: None,
        remember: None,
    };
    let everything = metadata_caches.everything();
    let mut responses = Answers::new();
    for _ in 0..ROUNDS_MAX {
        let worker = limits.worker().await;
        let decided = catch_unwind(AssertUnwindSafe(|| S::decide(&everything, &key, &responses, clock::now())));
        drop(worker);
        let plan = match decided {
            Ok(Step::Execute(plan)) => plan,
            Ok(Step::Query(questions)) => {
                send_queries(&driver, &metadata_caches, questions, &mut responses).await;
                continue;
            }
            Err(_) => {
                tracing::error!("the controller panicked; retrying the key later");
                return failed();
            }
        };
        if let Some(reason) = &plan.waiting {
            tracing::debug!(reason, "waiting");
        }
        let (effects, failure) = execute_plan(&driver, &limits, &no_side_effects(), &plan).await;
        // A failed query or missing metadata may succeed later without a change that triggers the key.
        let unsure = responses.values().any(|response| matches!(response, QueryResponse::Failed(_)))
            || (!everything.whole && plan.waiting.is_some());
        let outcome =
            if failure.is_some() || unsure { Outcome::Failed } else { Outcome::Done(plan.wake_at.map(clock::instant)) };
        return ReconcileResult { outcome, took: Duration::ZERO, effects, rejection: None, remember: None };
    }
    tracing::warn!("too many rounds of queries; retrying the key later");
    failed()
}

async fn send_queries(
    driver: &Arc<Driver>,
    metadata_caches: &MetadataCaches,
    questions: Vec<Query>,
    responses: &mut Answers,
) {
    let mut questions = questions.into_iter();
    loop {
        let mut under_way = JoinSet::new();
        for question in questions.by_ref().take(QUESTIONS_MAX) {
            let (driver, metadata_caches) = (Arc::clone(driver), metadata_caches.clone());
            let task = async move {
                let response = metadata_caches.send_query(&driver.client, &question).await;
                if let QueryResponse::Failed(reason) = &response {
                    tracing::info!(?question, reason, "query failed");
                }
                (question, response)
            };
            under_way.spawn(task.in_current_span());
        }
        if under_way.is_empty() {
            return;
        }
        while let Some(task_result) = under_way.join_next().await {
            if let Ok((question, response)) = task_result {
                responses.insert(question, response);
            }
        }
    }
}
