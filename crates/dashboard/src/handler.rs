//! The handler of all requests below `/dashboard`.

mod session;
mod stream;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::Body;
use client::config::Credential;
use http::header::ORIGIN;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::upgrade::OnUpgrade;
use tokio::sync::Semaphore;

use crate::assets::{self, INDEX};
use crate::chain::{self, NodeRecordsSource};
use crate::forward;
use crate::origin::Exposure;
use crate::rejection::Rejection;
use crate::response;
use crate::sessions::{Limits, Sessions};
use session::{Code, Session};

/// The prefix of all paths.
pub(crate) const PREFIX: &str = "/dashboard";
/// Maximum size of a request body; that of the API server.
const BODY_BYTES_MAX: usize = 3 << 20;
/// Maximum size of a sign-in request: a kubeconfig with certificates has about 6 KiB.
const SIGN_IN_BYTES_MAX: usize = 256 << 10;
/// Time limit for receiving a body.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Users that sign in at the same time.
const SIGN_INS_MAX: usize = 8;

/// The API server of the dashboard, and the exposure to browsers.
pub struct Config {
    /// The URL, the CA and the proxy of the API server. Credentials in it are never used.
    pub server: client::Config,
    pub exposure: Exposure,
    /// The stage records of nodes on this host, which the event chain includes.
    pub node_records: Option<NodeRecordsSource>,
    pub settings: Settings,
}

/// Timeouts and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A session without requests ends after this time.
    pub session_idle: Duration,
    /// A session ends after this time in any case.
    pub session_max: Duration,
    /// Maximum number of sessions of all users.
    pub sessions_max: usize,
    /// Maximum number of sessions of one user.
    pub sessions_per_user_max: usize,
    /// Maximum number of open streams of a session.
    pub streams_max: usize,
    /// Maximum number of open event chains of a session. Each has copies of the objects of a namespace.
    pub chains_per_session_max: usize,
    /// Maximum number of open event chains of all sessions.
    pub chains_max: usize,
    /// Time limit until the head of the API server's response.
    pub response_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            session_idle: Duration::from_secs(3600),
            session_max: Duration::from_secs(12 * 3600),
            sessions_max: 128,
            sessions_per_user_max: 16,
            streams_max: 64,
            chains_per_session_max: 8,
            chains_max: 64,
            response_timeout: Duration::from_secs(65),
        }
    }
}

/// The dashboard. It has no background tasks except for those of sessions.
pub struct Dashboard {
    config: Config,
    sessions: Arc<Mutex<Sessions<Session>>>,
    codes: Mutex<Vec<Code>>,
    sign_ins: Semaphore,
    chains: Arc<Semaphore>,
}

/// A request without its body.
struct Head {
    method: Method,
    uri: http::Uri,
    headers: http::HeaderMap,
    upgrade: Option<OnUpgrade>,
}

impl Dashboard {
    pub fn new(mut config: Config) -> Self {
        // The dashboard acts only with the credentials of its users.
        config.server.tls.client = None;
        config.server.credential = Credential::None;
        config.server.impersonate = None;
        let settings = &config.settings;
        let limits = Limits {
            idle: settings.session_idle,
            absolute: settings.session_max,
            sessions_max: settings.sessions_max,
            per_user_max: settings.sessions_per_user_max,
        };
        let sessions = Arc::new(Mutex::new(Sessions::new(limits)));
        let chains = Arc::new(Semaphore::new(settings.chains_max));
        Self { config, sessions, codes: Mutex::default(), sign_ins: Semaphore::new(SIGN_INS_MAX), chains }
    }

    /// Whether a path belongs to the dashboard.
    pub fn is_served(path: &str) -> bool {
        path.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Serves a request.
    pub async fn serve<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut parts, body) = request.into_parts();
        let upgrade = parts.extensions.remove();
        let head = Head { method: parts.method, uri: parts.uri, headers: parts.headers, upgrade };
        let method = head.method.clone();
        let response = self.route(head, body).await.unwrap_or_else(|rejection| response::rejected(&rejection));
        response::for_method(&method, response)
    }

    async fn route<B>(&self, head: Head, body: B) -> Result<Response<Body>, Rejection>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let exposure = self.config.exposure;
        let path = head.uri.path().strip_prefix(PREFIX).ok_or(Rejection::NotFound)?.to_owned();
        if let Some(path) = path.strip_prefix("/api") {
            if forward::is_websocket(&head.method, &head.headers) {
                exposure.check_websocket(&head.uri, &head.headers)?;
                return self.websocket(path, head).await;
            }
            exposure.check(&head.uri, &head.headers)?;
            let session = self.session(&head.headers)?;
            let forward = forward::request(&head.method, path, head.uri.query(), &head.headers)?;
            let body = read(body, BODY_BYTES_MAX).await?;
            return self.forward(&session, head.method, forward, body).await;
        }
        match (path.as_str(), &head.method) {
            ("/session", method) => {
                exposure.check(&head.uri, &head.headers)?;
                match *method {
                    Method::GET => self.describe_session(&head.headers),
                    Method::POST => self.sign_in(&head.headers, &read(body, SIGN_IN_BYTES_MAX).await?).await,
                    Method::DELETE => Ok(self.sign_out(&head.headers)),
                    _ => Err(Rejection::Method(head.method)),
                }
            }
            ("/chain", &Method::GET) => {
                exposure.check(&head.uri, &head.headers)?;
                let session = self.session(&head.headers)?;
                let query = chain::Query::parse(head.uri.query().unwrap_or_default())?;
                let permits = [&session.chains, &self.chains].map(|chains| Arc::clone(chains).try_acquire_owned());
                let [Ok(of_session), Ok(of_server)] = permits else { return Err(Rejection::TooManyChains) };
                let (client, records) = (session.client.clone(), self.config.node_records.clone());
                let steps = chain::follow(client, query, records, (of_session, of_server)).await?;
                session.stream(response::stream(http::StatusCode::OK, steps))
            }
            ("", &Method::GET | &Method::HEAD) => Ok(response::moved("/dashboard/")),
            (path, &Method::GET | &Method::HEAD) => {
                exposure.host(&head.uri, &head.headers)?;
                let name = match path {
                    "/" => INDEX,
                    path => path.strip_prefix("/assets/").ok_or(Rejection::NotFound)?,
                };
                let asset = assets::find(name).ok_or(Rejection::NotFound)?;
                Ok(response::asset(asset, &head.headers))
            }
            _ => Err(Rejection::Method(head.method)),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Sessions<Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session of a request's cookie.
    fn session(&self, headers: &http::HeaderMap) -> Result<Arc<Session>, Rejection> {
        let key = session::key(headers, self.config.exposure).ok_or(Rejection::NoSession)?;
        self.lock().find(Instant::now(), key).ok_or(Rejection::NoSession)
    }
}

impl Head {
    /// Whether a WebSocket request has an `Origin`, whose value was checked.
    fn has_origin(&self) -> bool {
        self.headers.contains_key(ORIGIN)
    }
}

/// Reads a body up to a size, in limited time.
async fn read<B>(body: B, bytes_max: usize) -> Result<Bytes, Rejection>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let collected = tokio::time::timeout(BODY_TIME, std::pin::pin!(Limited::new(body, bytes_max)).collect()).await;
    match collected.map_err(|_| Rejection::SlowBody)? {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Rejection::TooLarge(bytes_max)),
        Err(_) => Err(Rejection::Body),
    }
}
