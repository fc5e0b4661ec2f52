//! Transports of API requests: over the network or within the process.

mod connect;
mod credentials;
mod exec;
mod https;
mod in_process;
mod tls;
mod verifier;

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;

pub use connect::{ConnectError, Connector, Wire};
pub use credentials::CredentialError;
pub use exec::ExecError;
pub use https::Https;
pub use in_process::InProcess;
pub use tls::{ClientCertificate, Stamp, TlsError, client_config};

/// Any error of a lower layer.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of a response, which may be unbounded.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
/// A pending response.
pub type ResponseFuture<'a> = Pin<Box<dyn Future<Output = Result<http::Response<Body>, TransportError>> + Send + 'a>>;

/// Sends requests with the identity of the transport.
///
/// The URI of a request has only a path and a query. The transport knows the server.
pub trait Transport: Send + Sync + 'static {
    /// Sends one request. Dropping the future or the response body cancels the request.
    fn send(&self, request: http::Request<Bytes>) -> ResponseFuture<'_>;

    /// Sends one request with an `Upgrade` header. Transports without connections reject it.
    fn switch(&self, _request: http::Request<Bytes>) -> Switching<'_> {
        Box::pin(std::future::ready(Err(TransportError::UpgradeUnsupported)))
    }
}

/// A pending switch of protocols.
pub type Switching<'a> = Pin<Box<dyn Future<Output = Result<UpgradeResponse, TransportError>> + Send + 'a>>;

/// The response to a request with an `Upgrade` header.
pub enum UpgradeResponse {
    /// The server switched protocols. The connection belongs to the caller.
    Switched { head: http::Response<()>, connection: UpgradedStream },
    /// The server responded without switching protocols.
    NotSwitched(http::Response<Body>),
}

/// A connection after a switch of protocols.
pub type UpgradedStream = TokioIo<Upgraded>;

/// Extension of requests with unbounded responses, such as watches.
#[derive(Clone, Copy, Debug)]
pub struct LongLived;

/// A request or its response was not transmitted.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// There is no connection, so the request had no effect.
    #[error("cannot connect to {server}")]
    Connect {
        /// The address of the server.
        server: String,
        source: BoxError,
    },
    /// The connection broke. The request may have had an effect.
    #[error("the connection broke")]
    Broken(#[source] BoxError),
    #[error("cannot obtain credentials")]
    Credentials(#[from] CredentialError),
    /// The certificates or keys are not usable.
    #[error("cannot set up TLS")]
    Tls(#[from] TlsError),
    /// The transport cannot hand over a connection.
    #[error("the transport cannot switch protocols")]
    UpgradeUnsupported,
    #[error("the request cannot be sent")]
    Request(#[from] http::Error),
}

/// Boxes any body as a response body.
pub fn body<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}
