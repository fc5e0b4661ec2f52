//! Who asks the server and whether they may: the API server decides, and its word is kept for a while.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use auth::User;
use client::{Client, Target, WriteOptions};
use http::{HeaderMap, Method, header};
use machinery::{Object, Resource, Value, value};

use crate::config::Config;

/// How long a token is believed without asking again.
const TOKEN_TTL: Duration = Duration::from_secs(120);
/// How long a yes holds.
const ALLOWED_TTL: Duration = Duration::from_secs(300);
/// How long a no holds.
const DENIED_TTL: Duration = Duration::from_secs(30);
/// How many answers are kept.
const KEPT_MAX: usize = 1024;

static TOKEN_REVIEWS: Resource = Resource::cluster("authentication.k8s.io", "v1", "tokenreviews", "TokenReview");
static ACCESS_REVIEWS: Resource =
    Resource::cluster("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview");

/// Who somebody is.
pub enum Who {
    /// This user.
    User(User),
    /// Nobody who may ask.
    Nobody,
}

/// Decides who may ask.
pub struct Access {
    client: Client,
    node: String,
    anonymous: bool,
    tokens: bool,
    authorize: bool,
    known_tokens: Kept<Option<User>>,
    known_answers: Kept<Result<(), String>>,
}

/// Answers that were given lately.
struct Kept<T>(Mutex<BTreeMap<String, (Instant, T)>>);

/// The verb of a request.
pub fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

/// The parts of a node that a path belongs to: who may use one of them may ask.
pub fn subresources(parts: &[String]) -> Vec<&'static str> {
    let first = parts.first().map_or("", String::as_str);
    match first {
        "stats" => vec!["stats"],
        "metrics" => vec!["metrics"],
        "logs" => vec!["log"],
        "checkpoint" => vec!["checkpoint"],
        "healthz" | "livez" | "readyz" => vec!["healthz", "proxy"],
        "pods" | "runningpods" => vec!["pods", "proxy"],
        "configz" => vec!["configz", "proxy"],
        _ => vec!["proxy"],
    }
}

impl Access {
    /// Decides as a kubelet is set up to.
    pub fn new(config: &Config, client: Client) -> Self {
        Self {
            client,
            node: config.node_name.clone(),
            anonymous: config.anonymous,
            tokens: config.token_webhook,
            authorize: config.authorization_webhook,
            known_tokens: Kept::default(),
            known_answers: Kept::default(),
        }
    }

    /// Who sent a request: by certificate, by token, or nobody in particular.
    pub async fn authenticate(&self, headers: &HeaderMap, by_certificate: Option<User>) -> Who {
        if let Some(user) = by_certificate {
            return Who::User(user);
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = given.and_then(|text| text.strip_prefix("Bearer ")).filter(|_| self.tokens);
        match token {
            Some(token) => match self.review(token).await {
                Some(user) => Who::User(user),
                None => Who::Nobody,
            },
            None if self.anonymous => {
                let (name, group) = ("system:anonymous", "system:unauthenticated");
                Who::User(User { name: name.into(), groups: vec![group.into()], ..User::default() })
            }
            None => Who::Nobody,
        }
    }

    async fn review(&self, token: &str) -> Option<User> {
        if let Some(known) = self.known_tokens.get(token) {
            return known;
        }
        let review =
            value!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let answer = self.client.create(&Target::all(&TOKEN_REVIEWS), &review, &WriteOptions::default()).await;
        let answer =
            answer.inspect_err(|error| tracing::warn!(error = %error, "a token could not be reviewed")).ok()?;
        let user =
            (answer["status"]["authenticated"].as_bool() == Some(true)).then(|| read_user(&answer["status"]["user"]));
        self.known_tokens.put(token, user.clone(), TOKEN_TTL);
        user
    }

    /// Whether a user may do something with one of these parts of the node.
    pub async fn authorize(&self, user: &User, verb: &str, subresources: Vec<&'static str>) -> Result<(), String> {
        if !self.authorize {
            return Ok(());
        }
        let mut last = Ok(());
        for subresource in subresources {
            last = self.ask(user, verb, subresource).await;
            if last.is_ok() {
                break;
            }
        }
        last
    }

    async fn ask(&self, user: &User, verb: &str, subresource: &str) -> Result<(), String> {
        let groups: Vec<Value> = user.groups.iter().map(|group| Value::from(group.as_str())).collect();
        let key = format!("{}\0{:?}\0{verb}\0{subresource}", user.name, user.groups);
        if let Some(known) = self.known_answers.get(&key) {
            return known;
        }
        let extra: Object = user
            .extra
            .iter()
            .map(|(name, values)| {
                (name.clone(), Value::Array(values.iter().map(|value| Value::from(value.as_str())).collect()))
            })
            .collect();
        let review = value!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
            "user": (user.name.as_str()), "uid": (user.uid.as_str()), "groups": groups, "extra": extra,
            "resourceAttributes": {"verb": verb, "version": "v1", "resource": "nodes", "subresource": subresource,
                "name": (self.node.as_str())}}});
        let answer = self.client.create(&Target::all(&ACCESS_REVIEWS), &review, &WriteOptions::default()).await;
        let answer = answer.map_err(|error| format!("Authorization error ({error})"))?;
        let denied =
            format!("Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{subresource}])", user.name);
        let allowed = answer["status"]["allowed"].as_bool() == Some(true);
        let verdict = if allowed { Ok(()) } else { Err(denied) };
        self.known_answers.put(&key, verdict.clone(), if allowed { ALLOWED_TTL } else { DENIED_TTL });
        verdict
    }
}

fn read_user(value: &Value) -> User {
    let texts = |value: &Value| {
        value.as_array().unwrap_or_default().iter().filter_map(|one| one.as_str().map(Into::into)).collect()
    };
    let extra = value["extra"].as_object().into_iter().flat_map(Object::iter);
    User {
        name: value.str_at(&["username"]).unwrap_or_default().into(),
        uid: value.str_at(&["uid"]).unwrap_or_default().into(),
        groups: texts(&value["groups"]),
        extra: extra.map(|(key, value)| (key.into(), texts(value))).collect(),
    }
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }
}

impl<T: Clone> Kept<T> {
    fn get(&self, key: &str) -> Option<T> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(key).filter(|(until, _)| Instant::now() < *until).map(|(_, value)| value.clone())
    }

    fn put(&self, key: &str, value: T, ttl: Duration) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if kept.len() >= KEPT_MAX {
            kept.retain(|_, (until, _)| now < *until);
        }
        if kept.len() >= KEPT_MAX {
            kept.pop_first();
        }
        kept.insert(key.to_owned(), (now + ttl, value));
    }
}
