//! Who asks a server that is not the API server, and whether they may: the API server decides, and its word is kept for a while.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use auth::User;
use auth::cache::Cache;
use client::{Client, Target, WriteOptions};
use machinery::time::{Duration, Time};
use machinery::{Object, Resource, Value, json, value};

/// How long a token is believed without asking again.
const TOKEN_TTL: Duration = Duration::from_seconds(120);
/// How long a yes holds.
const ALLOWED_TTL: Duration = Duration::from_seconds(300);
/// How long a no holds.
const DENIED_TTL: Duration = Duration::from_seconds(30);
/// How many answers are kept.
const KEPT_MAX: usize = 1024;

static TOKEN_REVIEWS: Resource = Resource::cluster("authentication.k8s.io", "v1", "tokenreviews", "TokenReview");
static ACCESS_REVIEWS: Resource =
    Resource::cluster("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview");

/// Asks the API server who somebody is and what they may.
pub struct Reviews {
    /// Whoever asks whose tokens these are.
    tokens_by: Client,
    /// Whoever asks what they may.
    access_by: Client,
    tokens: Kept<Option<User>>,
    answers: Kept<bool>,
}

/// Answers that were given lately, by a hash of what was asked: a token is not kept in memory.
struct Kept<T> {
    answers: Mutex<Cache<T>>,
    /// Ages count from here, whatever becomes of the clock on the wall.
    origin: Instant,
}

impl Reviews {
    /// Asks by this client.
    pub fn new(client: Client) -> Self {
        Self::by(client.clone(), client)
    }

    /// Asks by one client whose tokens these are, and by another what they may.
    pub fn by(tokens: Client, access: Client) -> Self {
        Self { tokens_by: tokens, access_by: access, tokens: Kept::default(), answers: Kept::default() }
    }

    /// Whose token this is; nobody's if it cannot be found out.
    pub async fn who(&self, token: &str) -> Option<User> {
        if let Some(known) = self.tokens.get(token) {
            return known;
        }
        let review =
            value!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let answer = self.tokens_by.create(&Target::all(&TOKEN_REVIEWS), &review, &WriteOptions::default()).await;
        let answer =
            answer.inspect_err(|error| tracing::warn!(error = %error, "a token could not be reviewed")).ok()?;
        let is_valid = answer["status"]["authenticated"].as_bool() == Some(true);
        let user = is_valid.then(|| User::from_user_info(&answer["status"]["user"]));
        self.tokens.put(token, user.clone(), TOKEN_TTL);
        user
    }

    /// Whether a user may do something with a resource (`resourceAttributes`).
    pub async fn may_use(&self, user: &User, resource: Value) -> Result<bool, client::Error> {
        self.may(user, "resourceAttributes", resource).await
    }

    /// Whether a user may ask for a path (`nonResourceAttributes`).
    pub async fn may_ask(&self, user: &User, verb: &str, path: &str) -> Result<bool, client::Error> {
        self.may(user, "nonResourceAttributes", value!({"verb": verb, "path": path})).await
    }

    async fn may(&self, user: &User, about: &str, attributes: Value) -> Result<bool, client::Error> {
        let mut spec: Object = match user.to_user_info() {
            Value::Object(info) => info,
            _ => Object::new(),
        };
        // The one field that has another name in a review.
        spec.remove("username");
        spec.insert("user", user.name.clone());
        spec.insert(about, attributes);
        let spec = Value::Object(spec);
        let key = json::to_string(&spec);
        if let Some(known) = self.answers.get(&key) {
            return Ok(known);
        }
        let review = value!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let answer = self.access_by.create(&Target::all(&ACCESS_REVIEWS), &review, &WriteOptions::default()).await?;
        let allowed = answer["status"]["allowed"].as_bool() == Some(true);
        self.answers.put(&key, allowed, if allowed { ALLOWED_TTL } else { DENIED_TTL });
        Ok(allowed)
    }
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { answers: Mutex::new(Cache::with_random_secret(KEPT_MAX)), origin: Instant::now() }
    }
}

impl<T: Clone> Kept<T> {
    fn get(&self, key: &str) -> Option<T> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(key, &[], self.now()).cloned()
    }

    fn put(&self, key: &str, value: T, ttl: Duration) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.insert(key, &[], value, self.now(), ttl);
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
    fn a_full_cache_evicts_the_oldest_answer() {
        let kept = Kept::default();
        kept.put("z", 0, TOKEN_TTL);
        for number in 1..KEPT_MAX {
            kept.put(&format!("a{number}"), number, TOKEN_TTL);
        }
        assert_eq!(kept.get("z"), Some(0));
        kept.put("b", KEPT_MAX, TOKEN_TTL);
        assert_eq!((kept.get("z"), kept.get("a1"), kept.get("b")), (None, Some(1), Some(KEPT_MAX)));
    }
}
