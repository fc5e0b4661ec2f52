//! Another server that is told of events.

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

/// How often a batch is sent.
const ATTEMPTS: u32 = 5;
/// How long the server may take for a batch.
const PATIENCE: Duration = Duration::from_secs(30);

/// Another server that is told.
pub struct Webhook {
    transport: Https,
    /// The path of its URL, and its query.
    path: Uri,
}

/// Why the server cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file that says where it is cannot be used.
    #[error("the configuration of the audit webhook cannot be used")]
    Config(#[from] KubeconfigError),
    /// It cannot be reached.
    #[error("the audit webhook cannot be reached")]
    Transport(#[from] TransportError),
    /// It did not take a batch.
    #[error("the audit webhook answered {0}")]
    Refused(StatusCode),
    /// It took too long.
    #[error("the audit webhook did not answer in time")]
    Late,
}

impl Webhook {
    /// The server that the file, in the format of a kubeconfig, names.
    pub fn from_file(file: &Path) -> Result<Self, Error> {
        let mut config = Kubeconfig::load(&[file.to_owned()])?.config(None)?;
        let mut parts = config.server.into_parts();
        let path = parts.path_and_query.replace(PathAndQuery::from_static("/"));
        config.server = Uri::from_parts(parts).expect("a URL is one with another path");
        Ok(Self { transport: Https::new(config)?, path: path.map(Uri::from).unwrap_or_default() })
    }

    /// Sends a batch, a few times if need be.
    pub async fn send(&self, events: &[Event], initial_backoff: Duration) -> Result<(), Error> {
        let body = Bytes::from(list_to_json(events));
        let mut backoff = initial_backoff;
        for _ in 1..ATTEMPTS {
            match self.once(body.clone()).await {
                // What the server does not want it will not want later.
                Err(Error::Refused(code)) if code.is_client_error() && code != StatusCode::TOO_MANY_REQUESTS => {
                    return Err(Error::Refused(code));
                }
                Ok(()) => return Ok(()),
                Err(error) => tracing::warn!(%error, "audit events are sent again"),
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
        let answer = tokio::time::timeout(PATIENCE, self.transport.send(request)).await.map_err(|_| Error::Late)??;
        if answer.status().is_success() { Ok(()) } else { Err(Error::Refused(answer.status())) }
    }
}
