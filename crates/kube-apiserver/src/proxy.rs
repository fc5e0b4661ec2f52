//! Streaming reverse proxy for pod, service and node proxy, exec, attach, port-forward, logs and aggregated APIs.
//!
//! ```text
//! client ─head, body─> pass ───> backend        client ─upgrade─> switch ───> backend
//!        <──── its response, streamed                  <─101, then bytes both ways─>
//! ```
//!
//! Only data in transit is buffered: each side waits for the other, and when one side closes the other is closed too. A
//! connection to a backend serves one request, because the request may last for hours or switch protocols.

pub mod headers;
mod kubelet;
mod messages;
mod translate;
mod tunnel;

use std::error::Error as StdError;

use bytes::Bytes;
use client::config::Tls;
use http::header::{HOST, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional_with_sizes;
use tracing::Instrument;

pub use kubelet::{CertificateVerification, Kubelets};
pub use messages::{has_messages, messages};
pub use translate::{STREAM_CLOSE, translate};
pub use tunnel::{TUNNEL_PREFIX, tunnel};

use crate::backend::{self, BoxError, Route};
use crate::response::{Body, HttpResponse};

/// Buffer size of an upgraded stream in each direction.
const BUFFER_BYTES: usize = 32 << 10;
/// Maximum size of the head of a backend's response.
const HEAD_BYTES_MAX: usize = 256 << 10;

/// A streamed request body.
pub type Outgoing = UnsyncBoxBody<Bytes, BoxError>;

/// The rest of a client's request after its head.
pub struct Stream {
    pub body: Outgoing,
    /// The connection, if the client requests an upgrade.
    pub upgrade: Option<OnUpgrade>,
}

/// The backend and path of a proxied request.
#[derive(Clone, Debug)]
pub struct Target {
    pub route: Route,
    pub tls: Tls,
    /// Path and query.
    pub path: String,
}

/// Reasons why a request could not be proxied.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The connection to the backend could not be established.
    #[error("error dialing backend: {text}")]
    Dial {
        /// The message of Go's dialer.
        text: String,
        source: BoxError,
    },
    /// The connection broke before the backend responded.
    #[error("{}", .0.source().map_or_else(|| .0.to_string(), ToString::to_string))]
    Exchange(#[from] hyper::Error),
    /// The path or a header is invalid.
    #[error("the request cannot be passed on")]
    Request(#[from] http::Error),
    /// The backend responded with success instead of 101.
    #[error("invalid upgrade response: status code {}", .0.as_u16())]
    NotSwitched(StatusCode),
    /// The backend's upgrade response does not match the request.
    #[error("unable to upgrade: {0}")]
    Upgrade(&'static str),
}

impl Stream {
    pub fn new<B>(body: B, upgrade: Option<OnUpgrade>) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self { body: body.map_err(Into::into).boxed_unsync(), upgrade }
    }
}

/// Returns an empty body.
pub fn nothing() -> Outgoing {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

impl Target {
    /// Builds the request to the backend.
    pub fn request(&self, method: Method, headers: HeaderMap, body: Outgoing) -> Result<Request<Outgoing>, ProxyError> {
        let uri: Uri = self.path.parse().map_err(http::Error::from)?;
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        if !request.headers().contains_key(HOST) {
            let authority = self.route.url.authority().map_or(self.route.dial.as_str(), |authority| authority.as_str());
            request.headers_mut().insert(HOST, HeaderValue::from_str(authority).map_err(http::Error::from)?);
        }
        Ok(request)
    }

    /// Sends a request over a dedicated connection and returns the streamed response.
    pub async fn send(&self, request: Request<Outgoing>) -> Result<Response<Incoming>, ProxyError> {
        let wire = backend::connect(&self.route, &self.tls, &[b"http/1.1"]).await;
        let wire = wire.map_err(|source| ProxyError::Dial { text: backend::go_text(&*source, &self.route), source })?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let (mut sender, connection) = builder.handshake(TokioIo::new(wire)).await?;
        let task = async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to a backend closed with an error");
            }
        };
        tokio::spawn(task.in_current_span());
        Ok(sender.send_request(request).await?)
    }

    /// Proxies a request and returns the response for the client.
    pub async fn pass(&self, request: Request<Outgoing>) -> Result<HttpResponse, ProxyError> {
        Ok(returned(self.send(request).await?))
    }

    /// Proxies an upgrade request. After 101, bytes are copied in both directions until both sides have closed. An
    /// error response of the backend is returned to the client.
    pub async fn switch(&self, request: Request<Outgoing>, client: OnUpgrade) -> Result<HttpResponse, ProxyError> {
        let response = self.send(request).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return upgrade_error(response);
        }
        let mut switched = Response::new(Body::Full(Bytes::new()));
        *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *switched.headers_mut() = response.headers().clone();
        tokio::spawn(carry(client, hyper::upgrade::on(response)).in_current_span());
        Ok(switched)
    }
}

/// Converts a backend's response to a response for the client.
pub fn returned(response: Response<Incoming>) -> HttpResponse {
    let (head, body) = response.into_parts();
    let mut returned = Response::new(Body::Proxied(body));
    *returned.status_mut() = head.status;
    *returned.headers_mut() = head.headers;
    headers::strip_hops(returned.headers_mut());
    returned
}

/// Returns the error response of a backend that does not upgrade. A success response is an error.
fn upgrade_error(response: Response<Incoming>) -> Result<HttpResponse, ProxyError> {
    if response.status().as_u16() < 400 {
        Err(ProxyError::NotSwitched(response.status()))
    } else {
        Ok(returned(response))
    }
}

/// Copies bytes in both directions. When one side closes its writing half, the other one is closed and can still
/// respond.
async fn carry(client: OnUpgrade, backend: OnUpgrade) {
    let (Ok(client), Ok(backend)) = tokio::join!(client, backend) else { return };
    let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
    let carried = copy_bidirectional_with_sizes(&mut client, &mut backend, BUFFER_BYTES, BUFFER_BYTES).await;
    if let Err(error) = carried {
        tracing::debug!(%error, "a proxied stream closed with an error");
    }
}
