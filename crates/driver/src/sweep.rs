//! Runs one sweeper: a decision about a key may need answers of the server before it is a plan.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use client::cache::{Changed, Notices};
use machinery::Key;
use reconcile::everything::{Answer, Answers, Question, Step, Sweeper};
use tokio::task::JoinSet;

use crate::census::Census;
use crate::clock;
use crate::queue::Outcome;
use crate::run::{Driver, Finished, Limits, Loop, Memory, NOTICES_MAX, carry_out};

/// Rounds of questions about one key before it is tried again later.
const ROUNDS_MAX: usize = 8;
/// Questions under way at once.
const QUESTIONS_MAX: usize = 16;

/// Runs a sweeper that decides about `workers` keys at once, and does not end; dropping it stops it.
pub async fn sweep<S: Sweeper>(driver: Arc<Driver>, workers: usize) {
    let census = driver.caches.census().clone();
    // Decisions about what is only half known would be questions to the server about all the rest.
    census.known().await;
    let notices = Notices::new(NOTICES_MAX);
    census.subscribe::<S>(&notices);
    let mut work = Loop::new(S::NAME, workers);
    loop {
        work.start_ready(|key, memory, limits| look::<S>(Arc::clone(&driver), census.clone(), limits, key, memory));
        match work.turn(&notices).await {
            Some(Changed::Keys(keys)) => keys.into_iter().for_each(|key| work.add(key)),
            Some(Changed::Everything) => {
                let mut keys = Vec::new();
                for entry in census.everything().all() {
                    S::concerns(&entry.key, None, Some(&entry.value), &mut keys);
                    S::concerns(&entry.key, Some(&entry.value), None, &mut keys);
                }
                keys.into_iter().for_each(|key| work.add(key));
            }
            None => {}
        }
    }
}

/// Looks at one key once the copies show what was written for it before, asks what must be asked, and carries out what is decided.
async fn look<S: Sweeper>(
    driver: Arc<Driver>,
    census: Census,
    limits: Arc<Limits>,
    key: Key,
    memory: Memory,
) -> Finished {
    for effect in &memory.effects {
        census.seen(effect).await;
    }
    let failed = || Finished {
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
                tracing::error!(controller = S::NAME, key = %key, "the decision panicked; the key is tried again later");
                return failed();
            }
        };
        if let Some(why) = &plan.waiting {
            tracing::debug!(controller = S::NAME, key = %key, why, "waiting");
        }
        let (effects, failure) = carry_out(S::NAME, &driver, &limits, &key, &plan).await;
        // What the server did not say, or what is not known yet, may be known later without anything changing.
        let unsure = answers.values().any(|answer| matches!(answer, Answer::Failed(_)))
            || (!everything.whole && plan.waiting.is_some());
        let outcome =
            if failure.is_some() || unsure { Outcome::Failed } else { Outcome::Done(plan.wake_at.map(clock::instant)) };
        return Finished { outcome, took: Duration::ZERO, effects, refusal: None, remember: None };
    }
    tracing::warn!(controller = S::NAME, key = %key, "too many questions; the key is tried again later");
    failed()
}

async fn ask<S: Sweeper>(driver: &Arc<Driver>, census: &Census, questions: Vec<Question>, answers: &mut Answers) {
    let mut questions = questions.into_iter();
    loop {
        let mut under_way = JoinSet::new();
        for question in questions.by_ref().take(QUESTIONS_MAX) {
            let (driver, census) = (Arc::clone(driver), census.clone());
            under_way.spawn(async move {
                let answer = census.ask(&driver.client, &question).await;
                if let Answer::Failed(why) = &answer {
                    tracing::info!(controller = S::NAME, ?question, why, "the server does not say");
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
