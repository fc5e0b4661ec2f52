//! Forwarded requests: responses and WebSockets, which end with their session.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use client::transport::{BoxError, LongLived};
use client::{Body, UpgradeResponse, transport};
use http::{Method, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::Instrument;

use super::session::Session;
use super::{Dashboard, Head};
use crate::causes::with_causes;
use crate::forward::{self, Forward};
use crate::rejection::Rejection;
use crate::response;

impl Dashboard {
    /// Sends a request with the session's credentials.
    pub(super) async fn forward(
        &self,
        session: &Arc<Session>,
        method: Method,
        forward: Forward,
        body: Bytes,
    ) -> Result<Response<Body>, Rejection> {
        let is_stream = forward.duration == forward::Duration::Stream;
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = forward.path.into();
        *request.headers_mut() = forward.headers;
        if is_stream {
            request.extensions_mut().insert(LongLived);
        }
        let limit = self.config.settings.response_timeout;
        let upstream = within(limit, &session.ended, session.client.raw(request)).await?;
        let (head, body) = upstream.into_parts();
        let response = response::forwarded(&head, body);
        session.stream(response)
    }

    /// Opens a WebSocket to the API server and copies bytes both ways.
    pub(super) async fn websocket(&self, path: &str, mut head: Head) -> Result<Response<Body>, Rejection> {
        debug_assert!(head.has_origin(), "the origin was checked");
        let session = self.session(&head.headers)?;
        let forward = forward::websocket(path, head.uri.query(), &head.headers)?;
        let browser = head.upgrade.take().ok_or(Rejection::Method(Method::GET))?;
        let permit = session.permit()?;
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = forward.path.into();
        *request.headers_mut() = forward.headers;
        let limit = self.config.settings.response_timeout;
        let (upstream, mut server) = match within(limit, &session.ended, session.client.switch(request)).await? {
            UpgradeResponse::Switched { head, connection } => (head, connection),
            UpgradeResponse::NotSwitched(response) => {
                let (head, body) = response.into_parts();
                return session.stream(response::forwarded(&head, body));
            }
        };
        let ended = session.ended.clone();
        let copying = async move {
            let Ok(browser) = browser.await else { return };
            let mut browser = TokioIo::new(browser);
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut browser, &mut server) => {}
                () = ended.cancelled() => {}
            }
            drop(permit);
        };
        tokio::spawn(copying.in_current_span());
        let mut response = Response::new(transport::body(Full::new(Bytes::new())));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = forward::switching_headers(upstream.headers());
        Ok(response)
    }
}

impl Session {
    /// Counts a response as a stream of the session, and ends it with the session.
    pub(super) fn stream(&self, response: Response<Body>) -> Result<Response<Body>, Rejection> {
        let (permit, ended) = (self.permit()?, Box::pin(self.ended.clone().cancelled_owned()));
        Ok(response.map(|body| transport::body(SessionBody { body, ended, _permit: permit })))
    }

    fn permit(&self) -> Result<OwnedSemaphorePermit, Rejection> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| Rejection::TooManyStreams)
    }
}

/// A body that is aborted when its session ends.
struct SessionBody {
    body: Body,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug, thiserror::Error)]
#[error("the session has ended")]
struct SessionEnded;

impl http_body::Body for SessionBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.ended.as_mut().poll(task).is_ready() {
            return Poll::Ready(Some(Err(SessionEnded.into())));
        }
        Pin::new(&mut self.body).poll_frame(task)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Waits for the head of a response.
async fn within<T>(
    limit: Duration,
    ended: &CancellationToken,
    response: impl Future<Output = Result<T, client::Error>>,
) -> Result<T, Rejection> {
    tokio::select! {
        response = tokio::time::timeout(limit, response) => {
            response.map_err(|_| Rejection::Timeout)?.map_err(|error| Rejection::Unreachable(with_causes(&error)))
        }
        () = ended.cancelled() => Err(Rejection::NoSession),
    }
}
