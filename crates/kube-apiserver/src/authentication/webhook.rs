//! Webhook token authentication (TokenReview) with a response cache.

use std::sync::Mutex;
use std::time::Duration;

use apimachinery::Str;
use auth::cache::Cache;
use auth::token_review::{self, AuthenticationResponse};

use crate::remote::Remote;
use client::clock::now;

/// Maximum number of cached responses.
const RESPONSES_MAX: usize = 8192;
/// Timeout of a TokenReview request.
const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Webhook {
    remote: Remote,
    api_version: &'static str,
    ttl: apimachinery::time::Duration,
    responses: Mutex<Cache<Option<AuthenticationResponse>>>,
}

impl Webhook {
    /// Creates an authenticator that sends TokenReviews of `version` (`v1` or `v1beta1`) and caches responses for
    /// `ttl`. Returns `None` for any other version.
    pub fn new(remote: Remote, version: &str, ttl: apimachinery::time::Duration) -> Option<Self> {
        let api_version = match version {
            "v1" => "authentication.k8s.io/v1",
            "v1beta1" => "authentication.k8s.io/v1beta1",
            _ => return None,
        };
        Some(Self { remote, api_version, ttl, responses: Mutex::new(Cache::with_random_secret(RESPONSES_MAX)) })
    }

    /// Authenticates a token for one of `audiences`. Returns `None` if the webhook does not know the token.
    pub async fn check(
        &self,
        token: &str,
        audiences: &[Str],
        own: &[Str],
    ) -> Result<Option<AuthenticationResponse>, String> {
        if let Some(known) = self.responses.lock().expect("no holder panics").get(token, audiences, now()) {
            return Ok(known.clone());
        }
        let review = token_review::request(self.api_version, token, audiences);
        let response = self.remote.post(&review, TIMEOUT).await?;
        let found = token_review::read_response(&response, audiences, own).map_err(|error| error.to_string())?;
        let mut responses = self.responses.lock().expect("no holder panics");
        responses.insert(token, audiences, found.clone(), now(), self.ttl);
        Ok(found)
    }
}
