//! Dispatch: sends a request to an endpoint of an upstream, and to another one if nothing was sent.

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::Instant;

use super::body::{self, Body};
use super::connect::{ConnectError, Connection, Wire};
use super::state::Shared;
use super::upstream::{Endpoint, Load, Upstream};
use crate::routing::BackendProtocol;

/// Endpoints to which one request is sent at most.
const ATTEMPTS_MAX: usize = 4;

/// The response of an endpoint. The load counts until it is dropped.
pub(super) struct Reply {
    pub response: Response<Incoming>,
    pub load: Load,
    pub endpoint: std::net::SocketAddr,
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
    Exchange(#[source] hyper::Error),
}

/// The result of one attempt that did not give a response.
enum Failed {
    /// Nothing was sent, so the request can be sent again.
    Unsent(Box<Request<Body>>, Option<hyper::Error>),
    /// The endpoint may have processed the request.
    Sent(hyper::Error),
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
/// whose pooled connection the endpoint closed meanwhile.
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
        if let Some(pooled) = endpoint.pooled(wire, &limits) {
            let replay = is_replayable(&request).then(|| copy(&request));
            match exchange(endpoint, pooled, prepare(request, wire, endpoint), shared).await {
                Ok(response) => return Ok(Reply { response, load, endpoint: endpoint.address() }),
                Err(Failed::Unsent(unsent, _)) => request = *unsent,
                Err(Failed::Sent(error)) => match replay {
                    Some(replay) if error.is_incomplete_message() || error.is_canceled() || error.is_closed() => {
                        request = replay;
                    }
                    _ => return Err(DispatchError::Exchange(error)),
                },
            }
            shared.metrics.count_retry();
        }
        tried.push(index);
        match endpoint.connect(wire, &limits).await {
            Ok(connection) => match exchange(endpoint, connection, prepare(request, wire, endpoint), shared).await {
                Ok(response) => return Ok(Reply { response, load, endpoint: endpoint.address() }),
                Err(Failed::Unsent(unsent, Some(error))) => {
                    request = *unsent;
                    failure = DispatchError::Exchange(error);
                }
                Err(Failed::Unsent(unsent, None)) => request = *unsent,
                Err(Failed::Sent(error)) => return Err(DispatchError::Exchange(error)),
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

/// Sends a request over a connection. An HTTP/1 connection returns to the pool afterwards.
async fn exchange(
    endpoint: &Arc<Endpoint>,
    connection: Connection,
    request: Request<Body>,
    shared: &Shared,
) -> Result<Response<Incoming>, Failed> {
    match connection {
        Connection::Http1(mut sender) => {
            let response = sender.try_send_request(request).await.map_err(failed)?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                endpoint.recycle(sender, shared.settings.pool_limits());
            }
            Ok(response)
        }
        Connection::Http2(mut sender) => sender.try_send_request(request).await.map_err(failed),
    }
}

fn failed(mut error: TrySendError<Request<Body>>) -> Failed {
    match error.take_message() {
        Some(request) => Failed::Unsent(Box::new(request), Some(error.into_error())),
        None => Failed::Sent(error.into_error()),
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
        }
        Wire::Http2 => {
            *request.version_mut() = Version::HTTP_2;
            let host = request.headers_mut().remove(http::header::HOST);
            let host = host.as_ref().map_or(&b""[..], http::HeaderValue::as_bytes);
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
