//! OIDC issuers: their keys are fetched when a token first needs them, and again when a token is signed by an unknown
//! key.

use std::sync::Arc;
use std::time::Duration;

use auth::User;
use auth::keys::KeySet;
use auth::oidc::{self, Authenticator, Error as TokenError, Verify, keys_url};
use bytes::{Bytes, BytesMut};
use client::config::Pem;
use client::{Config, Https, Transport};
use http::{Request, Uri};
use http_body_util::BodyExt;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::reload::ReloadedValue;
use client::clock::now;

/// Timeout of a request to an issuer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum interval between requests to one issuer, so that invalid tokens cannot cause a flood of requests.
const FETCH_INTERVAL_MIN: Duration = Duration::from_secs(10);
/// Maximum size of a discovery document or key set in bytes.
const DOCUMENT_MAX: usize = 1 << 20;

/// The configured issuers, reloaded when their files change.
pub struct Issuers(ReloadedValue<Vec<Issuer>>);

pub(super) struct Issuer {
    authenticator: Authenticator,
    keys: Mutex<Keys>,
}

#[derive(Default)]
struct Keys {
    known: Arc<KeySet>,
    fetched_at: Option<Instant>,
}

/// Reasons why an issuer's keys cannot be fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{0} is not a valid server URL")]
    Url(String),
    #[error("the request to the server failed")]
    Transport(#[from] client::TransportError),
    #[error("the request to the server timed out")]
    Timeout,
    #[error("the server responded with {0}")]
    Status(http::StatusCode),
    #[error("the response cannot be parsed: {0}")]
    Body(String),
    #[error(transparent)]
    Discovery(#[from] oidc::DiscoveryError),
    #[error(transparent)]
    Keys(#[from] auth::keys::Error),
}

impl Issuers {
    /// Loads issuers with `load`, and loads them again when one of the files changes.
    pub fn new<E, F>(files: Vec<std::path::PathBuf>, load: F) -> Result<Self, E>
    where
        E: std::error::Error + Send + Sync + 'static,
        F: Fn() -> Result<Vec<Authenticator>, E> + Send + Sync + 'static,
    {
        let issuers = move || Ok(load()?.into_iter().map(Issuer::new).collect());
        Ok(Self(ReloadedValue::new(files, issuers)?))
    }

    /// Verifies a token. Returns `None` if the token is not from a configured issuer.
    pub async fn check(&self, token: &str) -> Result<Option<User>, TokenError> {
        for issuer in &*self.0.current() {
            if issuer.authenticator.issued(token) {
                return issuer.check(token).await;
            }
        }
        Ok(None)
    }
}

impl Issuer {
    fn new(authenticator: Authenticator) -> Self {
        Self { authenticator, keys: Mutex::default() }
    }

    async fn check(&self, token: &str) -> Result<Option<User>, TokenError> {
        let keys = self.keys.lock().await.known.clone();
        let checked = self.authenticator.check(token, &keys, now());
        if !matches!(checked, Err(TokenError::Verify(Verify::Signature))) {
            return checked;
        }
        // The issuer may have rotated its keys.
        let Some(keys) = self.fresh(&keys).await else { return checked };
        self.authenticator.check(token, &keys, now())
    }

    /// Returns keys newer than `old`, if there are any. Concurrent callers share one request.
    async fn fresh(&self, old: &Arc<KeySet>) -> Option<Arc<KeySet>> {
        let mut keys = self.keys.lock().await;
        if !Arc::ptr_eq(&keys.known, old) {
            return Some(keys.known.clone());
        }
        if keys.fetched_at.is_some_and(|at| at.elapsed() < FETCH_INTERVAL_MIN) {
            return None;
        }
        keys.fetched_at = Some(Instant::now());
        match self.fetch().await {
            Ok(set) => {
                keys.known = Arc::new(set);
                Some(keys.known.clone())
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                tracing::warn!(
                    issuer = %self.authenticator.issuer.url, %error, cause,
                    "failed to fetch the keys of an OIDC issuer"
                );
                None
            }
        }
    }

    async fn fetch(&self) -> Result<KeySet, FetchError> {
        let document = self.document(&self.authenticator.discovery_url()).await?;
        let keys = self.document(&keys_url(&self.authenticator, &document)?).await?;
        Ok(KeySet::parse(&keys)?)
    }

    async fn document(&self, url: &str) -> Result<Bytes, FetchError> {
        let wrong = || FetchError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let path = uri.path_and_query().cloned().ok_or_else(wrong)?;
        let origin = format!("{}://{}", uri.scheme_str().ok_or_else(wrong)?, uri.authority().ok_or_else(wrong)?);
        let mut config = Config::new(origin.parse().map_err(|_| wrong())?);
        let ca = &self.authenticator.issuer.certificate_authority;
        if !ca.is_empty() {
            config.tls.certificate_authority = Some(Pem::Inline(Bytes::copy_from_slice(ca.as_bytes())));
        }
        let transport = Https::new(config)?;
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = Uri::from(path);
        let fetch = async {
            let response = transport.send(request).await?;
            if !response.status().is_success() {
                return Err(FetchError::Status(response.status()));
            }
            whole(response.into_body()).await
        };
        tokio::time::timeout(TIMEOUT, fetch).await.map_err(|_| FetchError::Timeout)?
    }
}

/// Reads a complete body of at most [`DOCUMENT_MAX`] bytes.
async fn whole(mut body: client::Body) -> Result<Bytes, FetchError> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| FetchError::Body(error.to_string()))?;
        whole.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        if whole.len() > DOCUMENT_MAX {
            return Err(FetchError::Body("it is too long".to_owned()));
        }
    }
    Ok(whole.freeze())
}
