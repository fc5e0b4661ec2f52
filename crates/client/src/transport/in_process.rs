//! Calls a function in this process instead of a server over the network: no TCP, no TLS, the same request.

use std::future::Future;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};

use super::{Answer, Body, Transport};

/// A function that answers requests, and the identity that they are made as.
///
/// The identity goes along as an extension of the request: the API server takes `auth::User` from there as if a filter had
/// authenticated it. Nothing that comes over a network can set an extension.
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
    /// Calls `service` as `identity`.
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
    fn send(&self, mut request: Request<Bytes>) -> Answer<'_> {
        request.extensions_mut().insert(self.identity.clone());
        // The whole life of a request is a large thing to move about.
        Box::pin((self.service)(request).map(Ok))
    }
}
