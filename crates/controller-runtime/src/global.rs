//! Sweeper loop: a decision about a key may need answers of the server before it yields a plan.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use apimachinery::Key;
use client::cache::{ChangeQueue, ChangedKeys};
use component_base::clock;
use controller::object_graph::{Answers, GlobalController, Query, QueryResponse, Step};
use tokio::task::JoinSet;

use crate::metadata_caches::MetadataCaches;
use crate::queue::Outcome;
use crate::run::{Driver, Limits, Loop, Memory, NOTICES_MAX, ReconcileResult, execute_plan};

/// Maximum rounds of questions about one key before it is retried later.
const ROUNDS_MAX: usize = 8;
/// Maximum concurrent questions.
const QUESTIONS_MAX: usize = 16;

/// Runs a global controller with `workers` concurrent decisions, forever. Drop the future to stop it.
pub async fn run_global<S: GlobalController>(driver: Arc<Driver>, workers: usize) {
    let census = driver.caches.census().clone();
    // With incomplete metadata every decision would query the server for the missing objects.
    census.known().await;
    let notices = ChangeQueue::new(NOTICES_MAX);
    census.subscribe::<S>(&notices);
    let mut work = Loop::new(S::NAME, workers);
    loop {
        work.start_ready(|key, memory, limits| look::<S>(Arc::clone(&driver), census.clone(), limits, key, memory));
        match work.turn(&notices).await {
            Some(ChangedKeys::Keys(keys)) => keys.into_iter().for_each(|key| work.add(key)),
            Some(ChangedKeys::Everything) => {
                let mut keys = Vec::new();
                for entry in census.everything().all() {
                    S::affected_keys(&entry.key, None, Some(&entry.value), &mut keys);
                    S::affected_keys(&entry.key, Some(&entry.value), None, &mut keys);
                }
                keys.into_iter().for_each(|key| work.add(key));
            }
            None => {}
        }
    }
}

/// Processes one key after the caches contain its earlier writes: answers its questions and executes the plan.
async fn look<S: GlobalController>(
    driver: Arc<Driver>,
    census: MetadataCaches,
    limits: Arc<Limits>,
    key: Key,
    memory: Memory,
) -> ReconcileResult {
    for effect in &memory.effects {
        census.seen(effect).await;
    }
    let failed = || ReconcileResult {
        outcome: Outcome::Failed,
        took: Duration::ZERO,
        effects: Vec::new(),
        refusal: None,
        remember: None,
    };
    let everything = census.everything();
    let mut answers = Answers::new();
    for _ in 0..ROUNDS_MAX {
        let worker = limits.worker().await;
        let decided = catch_unwind(AssertUnwindSafe(|| S::decide(&everything, &key, &answers, clock::now())));
        drop(worker);
        let plan = match decided {
            Ok(Step::Act(plan)) => plan,
            Ok(Step::Ask(questions)) => {
                ask::<S>(&driver, &census, questions, &mut answers).await;
                continue;
            }
            Err(_) => {
                tracing::error!(controller = S::NAME, key = %key, "the controller panicked; retrying the key later");
                return failed();
            }
        };
        if let Some(why) = &plan.waiting {
            tracing::debug!(controller = S::NAME, key = %key, why, "waiting");
        }
        let (effects, failure) = execute_plan(S::NAME, &driver, &limits, &key, &plan).await;
        // A failed question, or missing metadata, may be resolved later without a change that triggers the key.
        let unsure = answers.values().any(|answer| matches!(answer, QueryResponse::Failed(_)))
            || (!everything.whole && plan.waiting.is_some());
        let outcome =
            if failure.is_some() || unsure { Outcome::Failed } else { Outcome::Done(plan.wake_at.map(clock::instant)) };
        return ReconcileResult { outcome, took: Duration::ZERO, effects, refusal: None, remember: None };
    }
    tracing::warn!(controller = S::NAME, key = %key, "too many rounds of queries; retrying the key later");
    failed()
}

async fn ask<S: GlobalController>(
    driver: &Arc<Driver>,
    census: &MetadataCaches,
    questions: Vec<Query>,
    answers: &mut Answers,
) {
    let mut questions = questions.into_iter();
    loop {
        let mut under_way = JoinSet::new();
        for question in questions.by_ref().take(QUESTIONS_MAX) {
            let (driver, census) = (Arc::clone(driver), census.clone());
            under_way.spawn(async move {
                let answer = census.ask(&driver.client, &question).await;
                if let QueryResponse::Failed(why) = &answer {
                    tracing::info!(controller = S::NAME, ?question, why, "query failed");
                }
                (question, answer)
            });
        }
        if under_way.is_empty() {
            return;
        }
        while let Some(answered) = under_way.join_next().await {
            if let Ok((question, answer)) = answered {
                answers.insert(question, answer);
            }
        }
    }
}
