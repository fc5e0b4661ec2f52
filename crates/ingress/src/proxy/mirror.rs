//! Mirrored requests: a bounded copy of a request whose response is discarded.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tracing::Instrument;

use super::body::{self, Body, BodyError};
use super::dispatch::{self, Answer};
use super::state::Shared;
use super::upstream::Upstream;

/// Frames of a body that may wait for a mirror. A mirror that is slower than the client's own request is cut off.
const FRAMES_MAX: usize = 16;

enum Piece {
    Data(Bytes),
    End,
}

/// The source of a mirrored body: it receives copies of the request's frames.
pub(super) struct Tee(mpsc::Sender<Piece>);

struct MirrorBody(mpsc::Receiver<Piece>);

impl Tee {
    /// Copies a frame. Returns false if the mirror is too slow or ended.
    pub(super) fn copy(&mut self, data: &Bytes) -> bool {
        self.0.try_send(Piece::Data(data.clone())).is_ok()
    }

    /// Ends the mirrored body. A body that is not ended is cut off.
    pub(super) fn finish(self) {
        let _ = self.0.try_send(Piece::End);
    }
}

impl http_body::Body for MirrorBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(match ready!(self.0.poll_recv(context)) {
            Some(Piece::Data(data)) => Some(Ok(Frame::data(data))),
            Some(Piece::End) => None,
            None => Some(Err(BodyError::MirrorCut)),
        })
    }
}

/// Sends a copy of a request in the background. Returns the tee if the request has a body. Requests are not mirrored
/// while too many copies are in flight.
pub(super) fn send(shared: &Arc<Shared>, upstream: &Arc<Upstream>, parts: &Parts, has_body: bool) -> Option<Tee> {
    let permit = Arc::clone(&shared.mirrors).try_acquire_owned().ok()?;
    let mut copy = http::Request::new(());
    *copy.method_mut() = parts.method.clone();
    *copy.uri_mut() = parts.uri.clone();
    *copy.headers_mut() = parts.headers.clone();
    let (tee, body) = if has_body {
        let (sender, receiver) = mpsc::channel(FRAMES_MAX);
        (Some(Tee(sender)), MirrorBody(receiver).boxed_unsync())
    } else {
        (None, body::empty())
    };
    let sending = discard_response(Arc::clone(shared), Arc::clone(upstream), copy.map(|()| body), permit);
    tokio::spawn(sending.in_current_span());
    tee
}

async fn discard_response(
    shared: Arc<Shared>,
    upstream: Arc<Upstream>,
    request: http::Request<Body>,
    permit: OwnedSemaphorePermit,
) {
    let limit = shared.settings.mirror_timeout;
    let exchange = async {
        let Ok(reply) = dispatch::send(&shared, &upstream, request, None).await else { return };
        let Answer::Response(response) = reply.answer else { return };
        let mut body = response.into_body();
        while let Some(Ok(_)) = body.frame().await {}
    };
    if tokio::time::timeout(limit, exchange).await.is_err() {
        tracing::debug!(backend = upstream.name(), "a mirrored request did not end in time");
    }
    drop(permit);
}
