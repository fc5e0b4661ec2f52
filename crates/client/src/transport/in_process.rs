//! In-process transport: calls a function instead of a server over the network.

use std::future::Future;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};

use super::{Body, ResponseFuture, Transport};

/// A function that serves requests, and the identity of the requests.
///
/// The identity is an extension of the request. The API server reads it in place of the TLS client identity of a
/// connection. A request from the network cannot set extensions.
pub struct InProcess<I, S> {
    identity: I,
    service: S,
}

impl<I, S, F> InProcess<I, S>
where
    I: Clone + Send + Sync + 'static,
    S: Fn(Request<Bytes>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    pub const fn new(identity: I, service: S) -> Self {
        Self { identity, service }
    }
}

impl<I, S, F> Transport for InProcess<I, S>
where
    I: Clone + Send + Sync + 'static,
    S: Fn(Request<Bytes>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    fn send(&self, mut request: Request<Bytes>) -> ResponseFuture<'_> {
        request.extensions_mut().insert(self.identity.clone());
        // Boxed, because the future of a complete request is large.
        Box::pin((self.service)(request).map(Ok))
    }
}
