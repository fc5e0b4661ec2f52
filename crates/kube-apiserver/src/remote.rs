//! Webhook client of a kubeconfig file, which posts reviews (TokenReview, SubjectAccessReview, ImageReview).

use std::path::{Path, PathBuf};
use std::time::Duration;

use apimachinery::status::{GroupName, Status};
use apimachinery::{Value, json};
use bytes::{Bytes, BytesMut};
use client::config::{Kubeconfig, KubeconfigError};
use client::transport::TransportError;
use client::{Config, Https, Transport};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, Uri};
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::response;

/// Delays between attempts; upstream's back-off.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_millis(750), Duration::from_millis(1125), Duration::from_millis(1687)];
/// Maximum size of a response.
const RESPONSE_BYTES_MAX: usize = 10 << 20;

/// A webhook server.
pub struct Remote {
    transport: Https,
    /// The path of the server URL in the kubeconfig, unchanged.
    path: String,
}

/// Reasons why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the kubeconfig {0} is invalid")]
    Kubeconfig(PathBuf, #[source] Box<KubeconfigError>),
    #[error("the server in the kubeconfig {0} cannot be used")]
    Transport(PathBuf, #[source] TransportError),
}

/// A failed attempt.
struct AttemptError {
    message: String,
    /// Whether a retry may succeed.
    passing: bool,
}

impl Remote {
    /// Returns the server of the kubeconfig's current context.
    pub fn of_file(file: &Path) -> Result<Self, Error> {
        let named = |error| Error::Kubeconfig(file.to_owned(), Box::new(error));
        let config = Kubeconfig::load(&[file.to_owned()]).map_err(named)?.config(None).map_err(named)?;
        Self::new(config).map_err(|error| Error::Transport(file.to_owned(), error))
    }

    fn new(mut config: Config) -> Result<Self, TransportError> {
        let path = config.server.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        let mut parts = config.server.clone().into_parts();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        config.server = Uri::from_parts(parts).map_err(http::Error::from)?;
        Ok(Self { transport: Https::new(config)?, path })
    }

    /// Posts a review and returns the response within the timeout. Retries after status 429, 500 or 504, and after a
    /// response that breaks off.
    pub async fn post(&self, review: &Value, within: Duration) -> Result<Value, String> {
        let end = Instant::now() + within;
        let body = Bytes::from(response::as_json(review));
        let mut pauses = PAUSES.iter();
        loop {
            let failed = match tokio::time::timeout_at(end, self.once(body.clone())).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(failed)) => failed,
                Err(_) => return Err(format!("no response within {within:?}: context deadline exceeded")),
            };
            match pauses.next() {
                Some(pause) if failed.passing && Instant::now() + *pause < end => tokio::time::sleep(*pause).await,
                _ => return Err(failed.message),
            }
        }
    }

    async fn once(&self, body: Bytes) -> Result<Value, AttemptError> {
        let lost = |error: &dyn std::error::Error| {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            AttemptError { message: format!("{error}{cause}"), passing: false }
        };
        let request = Request::post(&self.path)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .body(body)
            .map_err(|error| lost(&error))?;
        let response = self.transport.send(request).await.map_err(|error| lost(&error))?;
        let code = response.status().as_u16();
        let (mut body, mut whole) = (response.into_body(), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| AttemptError { message: error.to_string(), passing: true })?;
            let Ok(data) = frame.into_data() else { continue };
            if whole.len() + data.len() > RESPONSE_BYTES_MAX {
                return Err(AttemptError { message: "the response is too long".to_owned(), passing: false });
            }
            whole.extend_from_slice(&data);
        }
        let passing = matches!(code, 429 | 500 | 504);
        read(code, &whole).map_err(|message| AttemptError { message, passing })
    }
}

/// Parses the object in a response, or returns client-go's message for an error code.
pub fn read(code: u16, body: &[u8]) -> Result<Value, String> {
    if (200..300).contains(&code) {
        return json::parse(body).map_err(|error| format!("couldn't get version/kind; json parse error: {error}"));
    }
    if let Some(status) = json::parse(body).ok().and_then(|value| Status::from_value(&value)) {
        return Err(status.message);
    }
    let text = String::from_utf8_lossy(body);
    Err(Status::generic(code, "POST", GroupName::default(), "", text.trim()).message)
}
