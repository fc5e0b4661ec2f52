//! Dispatch: sends a request to an endpoint of an upstream, and to another one if nothing was sent.

use std::sync::Arc;

use http::header::HOST;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::client::conn::TrySendError;
use tokio::time::Instant;

use super::body::{self, Body, EndpointBody};
use super::connect::{ConnectError, Connection, Wire};
use super::http1::{self, Http1Error, Upgraded};
use super::state::Shared;
use super::upstream::{Endpoint, Load, PoolLimits, Upstream};
use crate::routing::BackendProtocol;

/// Endpoints to which one request is sent at most.
const ATTEMPTS_MAX: usize = 4;

/// The response of an endpoint. The load counts until it is dropped.
pub(super) struct Reply {
    pub answer: Answer,
    pub load: Load,
    pub endpoint: std::net::SocketAddr,
}

pub(super) enum Answer {
    Response(Response<EndpointBody>),
    /// The endpoint switches protocols (101).
    Switched(Response<()>, Upgraded),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum DispatchError {
    #[error("the backend has no endpoints")]
    NoEndpoints,
    #[error("no endpoint accepted a connection")]
    Connect(#[source] ConnectError),
    #[error("the endpoint did not answer in time")]
    Timeout,
    #[error("the endpoint closed the connection or sent an invalid response")]
    Exchange(#[source] ExchangeError),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error(transparent)]
    Http1(#[from] Http1Error),
    #[error(transparent)]
    Http2(#[from] hyper::Error),
}

/// The result of one attempt that did not give a response.
struct Failed {
    error: ExchangeError,
    /// The request, if its body is untouched.
    request: Option<Box<Request<Body>>>,
    /// Whether the endpoint may have processed the request.
    is_sent: bool,
}

impl DispatchError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            DispatchError::NoEndpoints => StatusCode::SERVICE_UNAVAILABLE,
            DispatchError::Connect(ConnectError::Timeout(_)) | DispatchError::Timeout => StatusCode::GATEWAY_TIMEOUT,
            DispatchError::Connect(_) | DispatchError::Exchange(_) => StatusCode::BAD_GATEWAY,
        }
    }
}

/// Sends a request until an endpoint answers. Only requests of which no byte was sent are sent again, and safe requests
/// whose connection the endpoint closed instead of answering: its process terminates before the table changes.
pub(super) async fn send(
    shared: &Arc<Shared>,
    upstream: &Upstream,
    request: Request<Body>,
    deadline: Option<Instant>,
) -> Result<Reply, DispatchError> {
    let attempts = attempt_endpoints(shared, upstream, request);
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, attempts).await.unwrap_or(Err(DispatchError::Timeout)),
        None => attempts.await,
    }
}

async fn attempt_endpoints(
    shared: &Arc<Shared>,
    upstream: &Upstream,
    mut request: Request<Body>,
) -> Result<Reply, DispatchError> {
    let wire = wire(upstream.protocol(), &request);
    let limits = shared.settings.pool_limits();
    let mut tried = Vec::new();
    let mut failure = DispatchError::NoEndpoints;
    for _ in 0..ATTEMPTS_MAX {
        let Some((index, endpoint)) = upstream.choose(&tried) else { break };
        let load = endpoint.begin();
        if let Some(pooled) = endpoint.pooled(wire) {
            match exchange(endpoint, pooled, prepare(request, wire, endpoint), &limits).await {
                Ok(answer) => return Ok(Reply { answer, load, endpoint: endpoint.address() }),
                Err(failed) => (request, _) = failed.retry()?,
            }
            shared.metrics.count_retry();
        }
        tried.push(index);
        match endpoint.connect(wire, &limits).await {
            Ok(connection) => match exchange(endpoint, connection, prepare(request, wire, endpoint), &limits).await {
                Ok(answer) => return Ok(Reply { answer, load, endpoint: endpoint.address() }),
                Err(failed) => (request, failure) = failed.retry()?,
            },
            Err(error) => {
                let endpoint = endpoint.address();
                tracing::debug!(%endpoint, backend = upstream.name(), %error, "failed to connect to an endpoint");
                failure = DispatchError::Connect(error);
            }
        }
        shared.metrics.count_retry();
    }
    Err(failure)
}

/// Sends a request over a connection. An HTTP/1 connection returns to the pool when the response has ended.
async fn exchange(
    endpoint: &Arc<Endpoint>,
    connection: Connection,
    request: Request<Body>,
    limits: &PoolLimits,
) -> Result<Answer, Failed> {
    match connection {
        Connection::Http1(stream) => match stream.send(request, endpoint.pool(*limits)).await {
            Ok(http1::Answer::Response(response)) => Ok(Answer::Response(response.map(EndpointBody::Http1))),
            Ok(http1::Answer::Switched(response, upgraded)) => Ok(Answer::Switched(response, upgraded)),
            Err(http1::Failed { error, request, is_sent }) => {
                Err(Failed { error: error.into(), request: request.map(Box::new), is_sent })
            }
        },
        Connection::Http2(mut sender) => {
            let replay = is_replayable(&request).then(|| copy(&request));
            match sender.try_send_request(request).await {
                Ok(response) => Ok(Answer::Response(response.map(EndpointBody::Http2))),
                Err(error) => Err(failed(error, replay)),
            }
        }
    }
}

fn failed(mut error: TrySendError<Request<Body>>, replay: Option<Request<Body>>) -> Failed {
    let unsent = error.take_message();
    let is_sent = unsent.is_none();
    Failed { error: error.into_error().into(), request: unsent.or(replay).map(Box::new), is_sent }
}

impl Failed {
    /// Returns the request if it may be sent again, with the failure if no endpoint is left.
    fn retry(self) -> Result<(Request<Body>, DispatchError), DispatchError> {
        let (is_sent, is_closed) = (self.is_sent, self.error.is_closed());
        let request = self.request.filter(|request| !is_sent || is_closed && is_replayable(request));
        let error = DispatchError::Exchange(self.error);
        match request {
            Some(request) => Ok((*request, error)),
            None => Err(error),
        }
    }
}

impl ExchangeError {
    /// Whether the endpoint closed the connection instead of answering.
    fn is_closed(&self) -> bool {
        match self {
            ExchangeError::Http1(error) => {
                matches!(error, Http1Error::Closed | Http1Error::Read(_) | Http1Error::Write(_))
            }
            ExchangeError::Http2(error) => error.is_incomplete_message() || error.is_canceled() || error.is_closed(),
        }
    }
}

/// Returns the HTTP version for a request. Over TLS, gRPC needs HTTP/2 and upgrades need HTTP/1.
fn wire(protocol: &BackendProtocol, request: &Request<Body>) -> Wire {
    let is_grpc = || {
        let kind = request.headers().get(http::header::CONTENT_TYPE);
        kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
    };
    match protocol {
        BackendProtocol::Http2 => Wire::Http2,
        BackendProtocol::Https(_) if is_grpc() => Wire::Http2,
        BackendProtocol::Http1 | BackendProtocol::Https(_) => Wire::Http1,
    }
}

/// Sets the form of the request target that the HTTP version needs. The request has its path only, and a Host header.
fn prepare(mut request: Request<Body>, wire: Wire, endpoint: &Endpoint) -> Request<Body> {
    let path = request.uri().path_and_query().cloned().unwrap_or_else(|| http::uri::PathAndQuery::from_static("/"));
    match wire {
        Wire::Http1 => {
            *request.version_mut() = Version::HTTP_11;
            *request.uri_mut() = path.into();
            // HTTP/1.0 clients need not name a host, HTTP/1.1 servers reject requests without one.
            if !request.headers().contains_key(HOST)
                && let Ok(host) = HeaderValue::try_from(endpoint.address().to_string())
            {
                request.headers_mut().insert(HOST, host);
            }
        }
        Wire::Http2 => {
            *request.version_mut() = Version::HTTP_2;
            let host = request.headers_mut().remove(HOST);
            let host = host.as_ref().map_or(&b""[..], HeaderValue::as_bytes);
            let given = http::uri::Authority::try_from(host).ok().or_else(|| request.uri().authority().cloned());
            let authority = given
                .unwrap_or_else(|| endpoint.address().to_string().parse().expect("a socket address is an authority"));
            let uri = http::Uri::builder().scheme("http").authority(authority).path_and_query(path).build();
            *request.uri_mut() = uri.expect("scheme, authority and path are a URI");
        }
    }
    request
}

/// Whether a request can be sent twice without effect, and has no body that would have been consumed.
fn is_replayable(request: &Request<Body>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
        && request.body().is_end_stream()
        && !request.headers().contains_key(http::header::UPGRADE)
}

fn copy(request: &Request<Body>) -> Request<Body> {
    let mut copy = Request::new(body::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}
