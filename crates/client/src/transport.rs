//! What carries a request to the API server and its answer back: one trait, over the network or inside the process.

mod connect;
mod credentials;
mod exec;
mod https;
mod in_process;
mod tls;
mod verifier;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

pub use connect::{ConnectError, Connector, Wire};
pub use credentials::CredentialError;
pub(crate) use exec::EXEC_EXTENSION;
pub use exec::ExecError;
pub use https::Https;
pub use in_process::InProcess;
pub use tls::{ClientCertificate, Stamp, TlsError, client_config};

/// Any failure of a lower layer.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of an answer, which may not end.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
/// An answer that is still to come.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<http::Response<Body>, TransportError>> + Send + 'a>>;

/// Carries requests, each as the identity that the transport was made with.
///
/// The URI of a request has a path and a query only: where the server is, the transport knows.
pub trait Transport: Send + Sync + 'static {
    /// Carries one request. Dropping the answer, or its body, abandons the request.
    fn send(&self, request: http::Request<Bytes>) -> Answer<'_>;
}

/// An extension of requests whose answer does not end by itself, such as watches.
#[derive(Clone, Copy, Debug)]
pub struct LongLived;

/// Why a request or its answer did not get through.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// There is no connection, so that the request had no effect.
    #[error("cannot connect to {server}")]
    Connect {
        /// Where to.
        server: String,
        /// Why not.
        source: BoxError,
    },
    /// The connection broke. The request may have had an effect.
    #[error("the connection broke")]
    Broken(#[source] BoxError),
    /// Who we are cannot be shown.
    #[error("cannot obtain credentials")]
    Credentials(#[from] CredentialError),
    /// The certificates or keys for TLS cannot be used.
    #[error("cannot set up TLS")]
    Tls(#[from] TlsError),
    /// The request has a form that cannot be sent.
    #[error("the request cannot be sent")]
    Request(#[from] http::Error),
}

/// Makes the body of an answer from any body.
pub fn body<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// A text that is never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(secret)")
    }
}
