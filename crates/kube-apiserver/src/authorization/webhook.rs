//! Webhook authorization (SubjectAccessReview) with a response cache.

use std::sync::Mutex;
use std::time::Duration;

use apimachinery::{Value, json};
use auth::access_review::webhook::{decision, request};
use auth::authorization_config::Webhook as Rules;
use auth::cache::Cache;
use auth::{Attributes, Authorizer, Decision};

use crate::remote::Remote;
use client::clock::now;

/// Maximum number of cached responses; upstream's limit.
const RESPONSES_MAX: usize = 8192;
/// Larger reviews are not cached, so that a client cannot fill the memory. Upstream's limit.
const QUESTION_BYTES_MAX: usize = 10_000;

/// A webhook authorizer.
pub struct Webhook {
    rules: Rules,
    remote: Remote,
    timeout: Duration,
    responses: Mutex<Cache<Decision>>,
}

impl Webhook {
    pub fn new(rules: Rules, remote: Remote) -> Self {
        let timeout = u64::try_from(rules.timeout.nanos()).map_or(Duration::ZERO, Duration::from_nanos);
        Self { rules, remote, timeout, responses: Mutex::new(Cache::with_random_secret(RESPONSES_MAX)) }
    }

    async fn post_review(&self, review: &Value) -> Result<Decision, String> {
        let response = self.remote.post(review, self.timeout).await?;
        decision(&response).map_err(|error| error.to_string())
    }
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Webhook").field(&self.rules).finish()
    }
}

impl Authorizer for Webhook {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        match self.rules.matches(attributes) {
            Ok(true) => {}
            Ok(false) => return Decision::NoOpinion(String::new()),
            Err(error) => {
                tracing::warn!(%error, "failed to evaluate the match conditions of an authorization webhook");
                return self.rules.failure_policy.decision();
            }
        }
        let review = request(attributes, self.rules.version);
        let question = json::to_string(&review["spec"]);
        if let Some(known) = self.responses.lock().expect("no holder panics").get(&question, &[], now()) {
            return known.clone();
        }
        // CEL expressions and impersonation call authorizers synchronously. `block_in_place` moves the other tasks of
        // this thread elsewhere while the response is awaited.
        let runtime = tokio::runtime::Handle::current();
        let result = tokio::task::block_in_place(|| runtime.block_on(self.post_review(&review)));
        let decided = match result {
            Ok(decided) => decided,
            Err(error) => {
                tracing::warn!(%error, "failed to call an authorization webhook");
                return self.rules.failure_policy.decision();
            }
        };
        let ttl = match decided {
            Decision::Allow(_) => self.rules.authorized_ttl,
            Decision::Deny(_) | Decision::NoOpinion(_) => self.rules.unauthorized_ttl,
        };
        if let (Some(ttl), true) = (ttl, question.len() < QUESTION_BYTES_MAX) {
            let mut responses = self.responses.lock().expect("no holder panics");
            responses.insert(&question, &[], decided.clone(), now(), ttl);
        }
        decided
    }
}
