//! Sign in and out, and the credentials of a session.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use apimachinery::{Resource, Value, json, value};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::config::{Credential, Secret, Tls};
use client::{Body, Client, Target, WriteOptions};
use http::header::{COOKIE, HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL, SET_COOKIE};
use http::{Response, StatusCode};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::Dashboard;
use crate::causes::with_causes;
use crate::credentials::{self, Credentials, SignIn, SignInError};
use crate::origin::{Exposure, SECRET, SECRET_PROTOCOL};
use crate::rejection::Rejection;
use crate::response;
use crate::sessions::{SessionKey, Sessions};

/// Time limit of the request that checks credentials.
const CHECK_TIME: Duration = Duration::from_secs(20);
/// An unused code expires after this time.
const CODE_LIFETIME: Duration = Duration::from_secs(3600);
/// Maximum number of unused codes.
const CODES_MAX: usize = 16;
/// The name of the user of requests without valid credentials.
const ANONYMOUS: &str = "system:anonymous";

static SELF_SUBJECT_REVIEWS: Resource =
    Resource::cluster("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview");

/// A signed-in user.
pub(super) struct Session {
    /// A client with the user's credentials.
    pub client: Client,
    /// The response to the page about the session.
    description: Value,
    pub streams: Arc<Semaphore>,
    /// Limits the event chains.
    pub chains: Arc<Semaphore>,
    /// Cancelled when the session ends.
    pub ended: CancellationToken,
}

/// A one-time code for a complete client configuration, which may contain files and commands of this host.
pub(super) struct Code {
    key: SessionKey,
    config: client::Config,
    until: Instant,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

impl Dashboard {
    /// Returns a code that signs in once with a configuration's own credentials.
    pub fn issue_code(&self, config: client::Config) -> String {
        let (code, now) = (random_id(), Instant::now());
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|code| code.until > now);
        if codes.len() >= CODES_MAX {
            codes.remove(0);
        }
        codes.push(Code { key: SessionKey::of(&code), config, until: now + CODE_LIFETIME });
        code
    }

    /// Returns user, groups and default namespace of the session. A browser that has never signed in, or that lacks one
    /// of the secrets, is not an error.
    pub(super) fn describe_session(&self, headers: &HeaderMap) -> Result<Response<Body>, Rejection> {
        if key(headers, self.config.exposure).is_none() {
            return Ok(response::data(StatusCode::OK, json::to_vec(&value!({"user": null}))));
        }
        let session = self.session(headers)?;
        Ok(response::data(StatusCode::OK, json::to_vec(&session.description)))
    }

    /// Starts a session if the API server accepts the credentials. The session always gets new secrets: one in a
    /// cookie, and one in the response for the page.
    pub(super) async fn sign_in(&self, headers: &HeaderMap, body: &[u8]) -> Result<Response<Body>, Rejection> {
        let _permit = self.sign_ins.try_acquire().map_err(|_| Rejection::TooManySignIns)?;
        let SignIn { credentials, namespace } = credentials::parse(body)?;
        let config = self.client_config(credentials)?;
        let namespace = namespace.unwrap_or_else(|| config.namespace.clone());
        let settings = client::Settings {
            user_agent: concat!("knarr-dashboard/", env!("CARGO_PKG_VERSION")).to_owned(),
            attempts_max: 1,
            request_timeout: self.config.settings.response_timeout,
            ..client::Settings::default()
        };
        let client = Client::connect(&config, settings).map_err(|error| Rejection::Rejected(with_causes(&error)))?;
        let user = check(&client).await?;
        let name = user.str_at(&["username"]).unwrap_or_default().to_owned();
        let groups = user.get("groups").cloned().unwrap_or_default();
        let description = value!({"user": (name.as_str()), "groups": groups, "namespace": namespace});
        let session = Arc::new(Session {
            client,
            description: description.clone(),
            streams: Arc::new(Semaphore::new(self.config.settings.streams_max)),
            chains: Arc::new(Semaphore::new(self.config.settings.chains_per_session_max)),
            ended: CancellationToken::new(),
        });
        let (id, secret) = (random_id(), random_id());
        let key = session_key(&id, &secret);
        self.end(headers);
        let added = self.lock().add(Instant::now(), key, &name, Arc::clone(&session));
        for ended in added.map_err(|_| Rejection::TooManySessions)? {
            ended.ended.cancel();
        }
        tokio::spawn(expire(Arc::downgrade(&self.sessions), key, session.ended.clone()).in_current_span());
        tracing::info!(user = name, "signed in to the dashboard");
        let mut description = description;
        if let Some(fields) = description.as_object_mut() {
            fields.insert("secret", secret);
        }
        let mut response = response::data(StatusCode::OK, json::to_vec(&description));
        response.headers_mut().insert(SET_COOKIE, cookie(self.config.exposure, &id, ""));
        Ok(response)
    }

    /// Ends the session and deletes the cookie.
    pub(super) fn sign_out(&self, headers: &HeaderMap) -> Response<Body> {
        self.end(headers);
        let mut response = response::data(StatusCode::OK, b"{}".to_vec());
        response.headers_mut().insert(SET_COOKIE, cookie(self.config.exposure, "", "; Max-Age=0"));
        response
    }

    fn end(&self, headers: &HeaderMap) {
        let session = key(headers, self.config.exposure).and_then(|key| self.lock().remove(key));
        if let Some(session) = session {
            session.ended.cancel();
        }
    }

    /// Returns the configuration of a client with these credentials. The server is always the configured one.
    fn client_config(&self, credentials: Credentials) -> Result<client::Config, Rejection> {
        let server = &self.config.server;
        let (credential, pair) = match credentials {
            Credentials::Token(token) => (Credential::Token(token), None),
            Credentials::Certificate(certificate, key) => (Credential::None, Some((certificate, key))),
            Credentials::Code(code) => return self.redeem(&code),
        };
        let tls = Tls { client: pair, ..server.tls.clone() };
        Ok(client::Config { tls, credential, impersonate: None, ..server.clone() })
    }

    fn redeem(&self, code: &Secret) -> Result<client::Config, Rejection> {
        let (key, now) = (SessionKey::of(code.reveal()), Instant::now());
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let found = codes.iter().position(|code| code.key == key && code.until > now).ok_or(SignInError::Code)?;
        Ok(codes.remove(found).config)
    }
}

/// Returns the user that the API server sees in the requests of the client.
async fn check(client: &Client) -> Result<Value, Rejection> {
    let review = value!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let target = Target::all(&SELF_SUBJECT_REVIEWS);
    let options = WriteOptions::default();
    let created = tokio::time::timeout(CHECK_TIME, client.create(&target, &review, &options)).await;
    let mut review = match created.map_err(|_| Rejection::Timeout)? {
        Ok(review) => review,
        Err(error) => {
            return Err(match error.status() {
                Some(status) => Rejection::Rejected(status.message.to_string()),
                None => Rejection::Unreachable(with_causes(&error)),
            });
        }
    };
    let user = review.get_mut("status").and_then(|status| status.get_mut("userInfo")).map(Value::take);
    let user = user.unwrap_or_default();
    match user.str_at(&["username"]) {
        None | Some("" | ANONYMOUS) => Err(Rejection::Anonymous(ANONYMOUS.to_owned())),
        Some(_) => Ok(user),
    }
}

/// Removes a session, and thereby its credentials, when it expires.
async fn expire(sessions: Weak<Mutex<Sessions<Session>>>, key: SessionKey, ended: CancellationToken) {
    loop {
        let ends = match sessions.upgrade() {
            Some(sessions) => sessions.lock().unwrap_or_else(PoisonError::into_inner).ends(key),
            None => return,
        };
        let Some(ends) = ends else { return };
        tokio::select! {
            () = tokio::time::sleep_until(ends.into()) => {}
            () = ended.cancelled() => return,
        }
        let Some(sessions) = sessions.upgrade() else { return };
        let expired = sessions.lock().unwrap_or_else(PoisonError::into_inner).expire(Instant::now());
        for session in expired {
            session.ended.cancel();
        }
    }
}

/// Returns the key of the session that the cookie and the page's secret name together. If a request has several of one,
/// it has none.
pub(super) fn key(headers: &HeaderMap, exposure: Exposure) -> Option<SessionKey> {
    let name = exposure.cookie_name();
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let id = only(pairs.filter(|(found, _)| *found == name).map(|(_, id)| id))?;
    let sent = headers.get_all(SECRET).iter().filter_map(|value| value.to_str().ok());
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let offered =
        offered.flat_map(|value| value.split(',')).filter_map(|name| name.trim().strip_prefix(SECRET_PROTOCOL));
    Some(session_key(id, only(sent.chain(offered))?))
}

/// Returns the only element, unless it is empty.
fn only<'a>(mut texts: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    texts.next().filter(|text| !text.is_empty() && texts.next().is_none())
}

fn session_key(id: &str, secret: &str) -> SessionKey {
    SessionKey::of(&format!("{id}.{secret}"))
}

fn cookie(exposure: Exposure, id: &str, more: &str) -> HeaderValue {
    let text = format!("{}={id}{}{more}", exposure.cookie_name(), exposure.cookie_attributes());
    HeaderValue::try_from(text).expect("names, base64 and attributes are visible ASCII")
}

/// Returns 256 random bits.
fn random_id() -> String {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).expect("the kernel gives random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}
