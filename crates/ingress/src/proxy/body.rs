//! Bodies: they stream frame by frame, and carry the limits of their route.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::http1::{Http1Error, RequestBodyError, RequestStream, ResponseStream};
use super::mirror::Tee;
use super::upstream::Pool;

/// The body of any request or response.
pub(super) type Body = UnsyncBoxBody<Bytes, BodyError>;

#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("failed to read the body")]
    Read(#[source] hyper::Error),
    #[error("failed to read the body of the request")]
    Client(#[source] RequestBodyError),
    #[error("failed to read the body of the response")]
    Http1(#[source] Http1Error),
    #[error("the body is larger than the route allows")]
    TooLarge,
    #[error("the body made no progress in time")]
    Stalled,
    #[error("the response did not end in time")]
    Deadline,
    #[error("the mirrored request was cut off")]
    MirrorCut,
}

/// The cause of a request body that ended early. It decides the response, because the backend only sees a closed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFailure {
    TooLarge,
    Stalled,
    /// The client disconnected or sent malformed chunks.
    Client,
}

/// Set once when the body of a request fails.
pub(super) type FailureCell = Arc<OnceLock<BodyFailure>>;

/// The body of a request of a client.
pub(super) enum ClientBody {
    Http1(RequestStream),
    Http2(Incoming),
}

/// The body of a request on its way to the backend.
pub(super) struct RequestBody {
    inner: ClientBody,
    bytes_left: Option<u64>,
    stall_limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    tees: Vec<Tee>,
    failure: FailureCell,
}

/// The body of a response of an endpoint.
pub(super) enum EndpointBody {
    Http1(ResponseStream<Pool>),
    Http2(Incoming),
}

/// The body of a response on its way to the client, with what lives as long as the response.
pub(super) struct ResponseBody<G> {
    inner: EndpointBody,
    deadline: Option<Pin<Box<Sleep>>>,
    guard: G,
}

/// Counts the bytes of a response.
pub(super) trait CountBytes {
    fn count(&mut self, bytes: usize);
}

pub(super) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn text(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

impl RequestBody {
    pub(super) fn new(
        inner: ClientBody,
        bytes_max: Option<u64>,
        stall_limit: Duration,
        tees: Vec<Tee>,
    ) -> (Self, FailureCell) {
        let failure = FailureCell::default();
        let body =
            Self { inner, bytes_left: bytes_max, stall_limit, stalled: None, tees, failure: Arc::clone(&failure) };
        (body, failure)
    }

    fn fail(&self, failure: BodyFailure, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let _ = self.failure.set(failure);
        Poll::Ready(Some(Err(error)))
    }

    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let limit = self.stall_limit;
        self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit))).as_mut().poll(context)
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) else {
            ready!(self.poll_stalled(context));
            return self.fail(BodyFailure::Stalled, BodyError::Stalled);
        };
        self.stalled = None;
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return self.fail(BodyFailure::Client, error),
            None => {
                self.tees.drain(..).for_each(Tee::finish);
                return Poll::Ready(None);
            }
        };
        let size = frame.data_ref().map_or(0, Bytes::len) as u64;
        if let Some(left) = self.bytes_left.as_mut() {
            match left.checked_sub(size) {
                Some(rest) => *left = rest,
                None => return self.fail(BodyFailure::TooLarge, BodyError::TooLarge),
            }
        }
        if let Some(data) = frame.data_ref() {
            self.tees.retain_mut(|tee| tee.copy(data));
        }
        if self.inner.is_end_stream() {
            self.tees.drain(..).for_each(Tee::finish);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl http_body::Body for ClientBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            ClientBody::Http1(body) => Pin::new(body).poll_frame(context).map_err(BodyError::Client),
            ClientBody::Http2(body) => Pin::new(body).poll_frame(context).map_err(BodyError::Read),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ClientBody::Http1(body) => body.is_end_stream(),
            ClientBody::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ClientBody::Http1(body) => body.size_hint(),
            ClientBody::Http2(body) => body.size_hint(),
        }
    }
}

impl http_body::Body for EndpointBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            EndpointBody::Http1(body) => Pin::new(body).poll_frame(context).map_err(BodyError::Http1),
            EndpointBody::Http2(body) => Pin::new(body).poll_frame(context).map_err(BodyError::Read),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            EndpointBody::Http1(body) => body.is_end_stream(),
            EndpointBody::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            EndpointBody::Http1(body) => body.size_hint(),
            EndpointBody::Http2(body) => body.size_hint(),
        }
    }
}

impl<G> ResponseBody<G> {
    pub(super) fn new(inner: EndpointBody, deadline: Option<Instant>, guard: G) -> Self {
        Self { inner, deadline: deadline.map(|deadline| Box::pin(tokio::time::sleep_until(deadline))), guard }
    }
}

impl<G: CountBytes + Unpin> http_body::Body for ResponseBody<G> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            if let Some(Ok(data)) = frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref)) {
                self.guard.count(data.map_or(0, Bytes::len));
            }
            return Poll::Ready(frame);
        }
        match &mut self.deadline {
            Some(deadline) => {
                ready!(deadline.as_mut().poll(context));
                Poll::Ready(Some(Err(BodyError::Deadline)))
            }
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
