//! Delegated authentication and authorization: cached TokenReviews and SubjectAccessReviews.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use apimachinery::time::{Duration, Time};
use apimachinery::{Object, Value, json, value};
use auth::User;
use auth::cache::Cache;
use client::{Client, Target, WriteOptions};
use controller::kinds;

/// Cache TTL of a TokenReview.
const TOKEN_TTL: Duration = Duration::from_seconds(120);
/// Cache TTL of an allowed request.
const ALLOWED_TTL: Duration = Duration::from_seconds(300);
/// Cache TTL of a denied request.
const DENIED_TTL: Duration = Duration::from_seconds(30);
/// Maximum cached results.
const CACHED_RESULTS_MAX: usize = 1024;

/// Authenticates and authorizes requests through the API server.
pub struct Reviews {
    /// The client for TokenReviews.
    tokens_by: Client,
    /// The client for SubjectAccessReviews.
    access_by: Client,
    tokens: ReviewCache<Option<User>>,
    decisions: ReviewCache<bool>,
}

/// Recent results by a hash of the request, so that tokens are not kept in memory.
struct ReviewCache<T> {
    results: Mutex<Cache<T>>,
    /// The origin of cache times, on a monotonic clock.
    origin: Instant,
}

impl Reviews {
    pub fn new(client: Client) -> Self {
        Self::by(client.clone(), client)
    }

    /// Uses separate clients for TokenReviews and SubjectAccessReviews.
    pub fn by(tokens: Client, access: Client) -> Self {
        Self { tokens_by: tokens, access_by: access, tokens: ReviewCache::default(), decisions: ReviewCache::default() }
    }

    /// Returns the user of a token; `None` if the token is invalid or the review fails.
    pub async fn who(&self, token: &str) -> Option<User> {
        if let Some(known) = self.tokens.get(token) {
            return known;
        }
        let review =
            value!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let response =
            self.tokens_by.create(&Target::all(&kinds::TOKEN_REVIEWS), &review, &WriteOptions::default()).await;
        let response = response.inspect_err(|error| tracing::warn!(error = %error, "TokenReview failed")).ok()?;
        let is_valid = response["status"]["authenticated"].as_bool() == Some(true);
        let user = is_valid.then(|| User::from_user_info(&response["status"]["user"]));
        self.tokens.put(token, user.clone(), TOKEN_TTL);
        user
    }

    /// Authorizes a request for a resource (`resourceAttributes`).
    pub async fn may_use(&self, user: &User, resource: Value) -> Result<bool, client::Error> {
        self.may(user, "resourceAttributes", resource).await
    }

    /// Authorizes a request for a path (`nonResourceAttributes`).
    pub async fn may_access_path(&self, user: &User, verb: &str, path: &str) -> Result<bool, client::Error> {
        self.may(user, "nonResourceAttributes", value!({"verb": verb, "path": path})).await
    }

    async fn may(&self, user: &User, about: &str, attributes: Value) -> Result<bool, client::Error> {
        let mut spec: Object = match user.to_user_info() {
            Value::Object(info) => info,
            _ => Object::new(),
        };
        // The user name has another field name in a SubjectAccessReview.
        spec.remove("username");
        spec.insert("user", user.name.clone());
        spec.insert(about, attributes);
        let spec = Value::Object(spec);
        let key = json::to_string(&spec);
        if let Some(known) = self.decisions.get(&key) {
            return Ok(known);
        }
        let review = value!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let response = self
            .access_by
            .create(&Target::all(&kinds::SUBJECT_ACCESS_REVIEWS), &review, &WriteOptions::default())
            .await?;
        let allowed = response["status"]["allowed"].as_bool() == Some(true);
        self.decisions.put(&key, allowed, if allowed { ALLOWED_TTL } else { DENIED_TTL });
        Ok(allowed)
    }
}

impl<T> Default for ReviewCache<T> {
    fn default() -> Self {
        Self { results: Mutex::new(Cache::with_random_secret(CACHED_RESULTS_MAX)), origin: Instant::now() }
    }
}

impl<T: Clone> ReviewCache<T> {
    fn get(&self, key: &str) -> Option<T> {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.get(key, &[], self.now()).cloned()
    }

    fn put(&self, key: &str, value: T, ttl: Duration) {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.insert(key, &[], value, self.now(), ttl);
    }

    fn now(&self) -> Time {
        let age = i64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(i64::MAX);
        Time::from_unix(0, 0).plus(Duration::from_nanos(age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_cache_evicts_the_oldest_result() {
        let cache = ReviewCache::default();
        cache.put("z", 0, TOKEN_TTL);
        for number in 1..CACHED_RESULTS_MAX {
            cache.put(&format!("a{number}"), number, TOKEN_TTL);
        }
        assert_eq!(cache.get("z"), Some(0));
        cache.put("b", CACHED_RESULTS_MAX, TOKEN_TTL);
        assert_eq!((cache.get("z"), cache.get("a1"), cache.get("b")), (None, Some(1), Some(CACHED_RESULTS_MAX)));
    }
}
