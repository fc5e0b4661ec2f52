//! Issuers of tokens outside the cluster: their keys are fetched when a token first needs them, and again when one is signed by a key
//! that is not known.

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

use crate::reload::Reloaded;
use crate::state::now;

/// How long an issuer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// An issuer is not asked more often, whatever tokens say.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// What an issuer may answer, in bytes.
const DOCUMENT_MAX: usize = 1 << 20;

/// The issuers that are configured now.
pub struct Issuers(Reloaded<Vec<Issuer>>);

/// One issuer.
pub struct Issuer {
    authenticator: Authenticator,
    keys: Mutex<Keys>,
}

#[derive(Default)]
struct Keys {
    known: Arc<KeySet>,
    asked_at: Option<Instant>,
}

/// Why an issuer's keys are not known.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{0} is no URL of a server")]
    Url(String),
    #[error("the server cannot be asked")]
    Transport(#[from] client::TransportError),
    #[error("the server did not answer in time")]
    Late,
    #[error("the server answered {0}")]
    Refused(http::StatusCode),
    #[error("the answer cannot be read: {0}")]
    Body(String),
    #[error(transparent)]
    Discovery(#[from] oidc::DiscoveryError),
    #[error(transparent)]
    Keys(#[from] auth::keys::Error),
}

impl Issuers {
    /// Issuers that a function makes, and makes again when the files have changed.
    pub fn new<E, F>(files: Vec<std::path::PathBuf>, load: F) -> Result<Self, E>
    where
        E: std::error::Error + Send + Sync + 'static,
        F: Fn() -> Result<Vec<Authenticator>, E> + Send + Sync + 'static,
    {
        let issuers = move || Ok(load()?.into_iter().map(Issuer::new).collect());
        Ok(Self(Reloaded::new(files, issuers)?))
    }

    /// Whose token this is; `None` if it is of no issuer here.
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
        // The issuer may have new keys.
        let Some(keys) = self.fresh(&keys).await else { return checked };
        self.authenticator.check(token, &keys, now())
    }

    /// Keys that are newer than those that did not do, if there are any. One asks for all who wait.
    async fn fresh(&self, old: &Arc<KeySet>) -> Option<Arc<KeySet>> {
        let mut keys = self.keys.lock().await;
        if !Arc::ptr_eq(&keys.known, old) {
            return Some(keys.known.clone());
        }
        if keys.asked_at.is_some_and(|at| at.elapsed() < ASK_EVERY) {
            return None;
        }
        keys.asked_at = Some(Instant::now());
        match self.fetch().await {
            Ok(set) => {
                keys.known = Arc::new(set);
                Some(keys.known.clone())
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                tracing::warn!(issuer = %self.authenticator.issuer.url, %error, cause, "an issuer's keys are not known");
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
        let authority = &self.authenticator.issuer.certificate_authority;
        if !authority.is_empty() {
            config.tls.certificate_authority = Some(Pem::Inline(Bytes::copy_from_slice(authority.as_bytes())));
        }
        let transport = Https::new(config)?;
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = Uri::from(path);
        let asked = async {
            let answer = transport.send(request).await?;
            if !answer.status().is_success() {
                return Err(FetchError::Refused(answer.status()));
            }
            whole(answer.into_body()).await
        };
        tokio::time::timeout(PATIENCE, asked).await.map_err(|_| FetchError::Late)?
    }
}

/// All of a body, if it is not too long.
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
