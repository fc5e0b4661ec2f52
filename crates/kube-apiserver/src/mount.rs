//! Mounted handlers: paths of the listener that the embedding binary serves.

use std::pin::Pin;

use client::Body;
use http::{Request, Response};
use hyper::body::Incoming;

/// A pending response of a mounted handler.
pub type MountedResponse<'a> = Pin<Box<dyn Future<Output = Response<Body>> + Send + 'a>>;

/// A handler for paths that are not part of the API, such as those of a web application.
///
/// Its requests are not authenticated, authorized or audited by the API server: the handler does that itself, or sends
/// the user's requests to the API.
pub trait Handler: Send + Sync + 'static {
    /// Whether the handler serves this path.
    fn is_served(&self, path: &str) -> bool;

    fn serve(&self, request: Request<Incoming>) -> MountedResponse<'_>;
}

/// The mounted handler of a server.
pub struct Mount(Box<dyn Handler>);

impl Mount {
    pub fn new(handler: impl Handler) -> Self {
        Self(Box::new(handler))
    }

    pub(crate) fn is_served(&self, path: &str) -> bool {
        self.0.is_served(path)
    }

    pub(crate) async fn serve(&self, request: Request<Incoming>) -> Response<Body> {
        self.0.serve(request).await
    }
}
