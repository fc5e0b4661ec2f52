//! A streaming reverse proxy: requests that somebody else answers.
//!
//! ```text
//! client ─head, body─> pass ───> backend        client ─upgrade─> switch ───> backend
//!        <──── its answer, as it comes                 <─101, then bytes both ways─>
//! ```
//!
//! Nothing is kept but what is on its way: each side waits for the other, and when one goes the other is told. A
//! connection to a backend serves one request, because what it carries may last for hours or become something else.

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

pub use kubelet::{Kubelets, Proof};
pub use messages::{has_messages, messages};
pub use translate::{STREAM_CLOSE, translate};
pub use tunnel::{TUNNEL_PREFIX, tunnel};

use crate::answer::{Answer, Body};
use crate::backend::{self, BoxError, Route};

/// What is kept of a stream on its way in one direction.
const BUFFER_BYTES: usize = 32 << 10;
/// What the head of a backend's answer may take.
const HEAD_BYTES_MAX: usize = 256 << 10;

/// A body that is passed on as it comes.
pub type Outgoing = UnsyncBoxBody<Bytes, BoxError>;

/// What comes of a client after the head of its request.
pub struct Stream {
    /// The body.
    pub body: Outgoing,
    /// The connection itself, if the client asks for that.
    pub upgrade: Option<OnUpgrade>,
}

/// Where a request goes, and what is asked for there.
#[derive(Clone, Debug)]
pub struct Target {
    /// What to connect to.
    pub route: Route,
    /// Whom to trust there.
    pub tls: Tls,
    /// Path and query.
    pub path: String,
}

/// Why a request could not be passed on.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// There is no connection.
    #[error("error dialing backend: {text}")]
    Dial {
        /// Why, in the words of Go's dialer.
        text: String,
        /// Why.
        source: BoxError,
    },
    /// The connection broke before there was an answer.
    #[error("{}", .0.source().map_or_else(|| .0.to_string(), ToString::to_string))]
    Exchange(#[from] hyper::Error),
    /// The path or a header cannot be written.
    #[error("the request cannot be passed on")]
    Request(#[from] http::Error),
    /// The backend goes on with HTTP, where it was asked for something else.
    #[error("invalid upgrade response: status code {}", .0.as_u16())]
    NotSwitched(StatusCode),
    /// The backend's answer does not fit what it was asked.
    #[error("unable to upgrade: {0}")]
    Upgrade(&'static str),
}

impl Stream {
    /// The rest of a request.
    pub fn new<B>(body: B, upgrade: Option<OnUpgrade>) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self { body: body.map_err(Into::into).boxed_unsync(), upgrade }
    }
}

/// Nothing.
pub fn nothing() -> Outgoing {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

impl Target {
    /// A request for what is wanted there.
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

    /// Sends a request over a connection of its own, and gives the answer as it comes.
    pub async fn send(&self, request: Request<Outgoing>) -> Result<Response<Incoming>, ProxyError> {
        let wire = backend::connect(&self.route, &self.tls, &[b"http/1.1"]).await;
        let wire = wire.map_err(|source| ProxyError::Dial { text: backend::go_text(&*source, &self.route), source })?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let (mut sender, connection) = builder.handshake(TokioIo::new(wire)).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to a backend ended");
            }
        });
        Ok(sender.send_request(request).await?)
    }

    /// Passes a request on, and its answer back.
    pub async fn pass(&self, request: Request<Outgoing>) -> Result<Answer, ProxyError> {
        Ok(returned(self.send(request).await?))
    }

    /// Passes a request on that asks for another protocol; what follows goes both ways until both sides have said
    /// everything. A backend that refuses is heard by the client.
    pub async fn switch(&self, request: Request<Outgoing>, client: OnUpgrade) -> Result<Answer, ProxyError> {
        let answer = self.send(request).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return refused(answer);
        }
        let mut switched = Response::new(Body::Whole(Bytes::new()));
        *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *switched.headers_mut() = answer.headers().clone();
        tokio::spawn(carry(client, hyper::upgrade::on(answer)));
        Ok(switched)
    }
}

/// An answer on its way back.
pub fn returned(answer: Response<Incoming>) -> Answer {
    let (head, body) = answer.into_parts();
    let mut returned = Response::new(Body::Foreign(body));
    *returned.status_mut() = head.status;
    *returned.headers_mut() = head.headers;
    headers::strip_hops(returned.headers_mut());
    returned
}

/// The answer of a backend that does not switch: its refusal, or nothing that a client could understand.
fn refused(answer: Response<Incoming>) -> Result<Answer, ProxyError> {
    if answer.status().as_u16() < 400 { Err(ProxyError::NotSwitched(answer.status())) } else { Ok(returned(answer)) }
}

/// Bytes both ways. When one side has said everything the other is told, and may still answer.
async fn carry(client: OnUpgrade, backend: OnUpgrade) {
    let (Ok(client), Ok(backend)) = tokio::join!(client, backend) else { return };
    let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
    let carried = copy_bidirectional_with_sizes(&mut client, &mut backend, BUFFER_BYTES, BUFFER_BYTES).await;
    if let Err(error) = carried {
        tracing::debug!(%error, "a stream ended");
    }
}
