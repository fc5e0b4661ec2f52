//! Audit webhook: sends batches of events to an external server.

use std::path::Path;
use std::time::Duration;

use ::audit::Event;
use ::audit::event::list_to_json;
use bytes::Bytes;
use client::config::{Kubeconfig, KubeconfigError};
use client::{Https, Transport, TransportError};
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode, Uri};

use super::queue::next_backoff;

/// Attempts per batch.
const ATTEMPTS: u32 = 5;
/// Timeout of one attempt.
const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Webhook {
    transport: Https,
    /// Path and query of the webhook's URL.
    path: Uri,
}

/// Reasons why a batch cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig of the webhook is invalid.
    #[error("the configuration of the audit webhook is invalid")]
    Config(#[from] KubeconfigError),
    #[error("failed to connect to the audit webhook")]
    Transport(#[from] TransportError),
    /// The webhook rejected a batch.
    #[error("the audit webhook responded with {0}")]
    Status(StatusCode),
    #[error("the request to the audit webhook timed out")]
    Timeout,
}

impl Webhook {
    /// Creates the client of the server in a kubeconfig (`--audit-webhook-config-file`).
    pub fn from_file(file: &Path) -> Result<Self, Error> {
        let mut config = Kubeconfig::load(&[file.to_owned()])?.config(None)?;
        let mut parts = config.server.into_parts();
        let path = parts.path_and_query.replace(PathAndQuery::from_static("/"));
        config.server = Uri::from_parts(parts).expect("a URL with another path is valid");
        Ok(Self { transport: Https::new(config)?, path: path.map(Uri::from).unwrap_or_default() })
    }

    /// Sends a batch with up to `ATTEMPTS` attempts.
    pub async fn send(&self, events: &[Event], initial_backoff: Duration) -> Result<(), Error> {
        let body = Bytes::from(list_to_json(events));
        let mut backoff = initial_backoff;
        for _ in 1..ATTEMPTS {
            match self.once(body.clone()).await {
                // A client error other than 429 is permanent.
                Err(Error::Status(code)) if code.is_client_error() && code != StatusCode::TOO_MANY_REQUESTS => {
                    return Err(Error::Status(code));
                }
                Ok(()) => return Ok(()),
                Err(error) => tracing::warn!(%error, "failed to send audit events to the webhook; retrying"),
            }
            tokio::time::sleep(backoff).await;
            backoff = next_backoff(backoff);
        }
        self.once(body).await
    }

    async fn once(&self, body: Bytes) -> Result<(), Error> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.clone();
        request.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        let response =
            tokio::time::timeout(TIMEOUT, self.transport.send(request)).await.map_err(|_| Error::Timeout)??;
        if response.status().is_success() { Ok(()) } else { Err(Error::Status(response.status())) }
    }
}
