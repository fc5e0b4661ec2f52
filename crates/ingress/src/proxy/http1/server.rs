//! HTTP/1.1 from clients: the task of a connection reads a request, calls the service and writes its response.
//!
//! ```text
//! RequestHead ──Request──> service ──Response──> ResponseWriter ──> the next request
//!    └──RequestStream──┘      └──101──> OnUpgrade
//! ```
//!
//! A connection that waits for a request has no buffers.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::UPGRADE;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body::{Body as _, Frame};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use super::client_io::{RequestStream, SharedIo};
use super::head::HeadSearch;
use super::request_head::{self, HeadLimits, RequestHead, RequestHeadError};
use super::response_head::{self, Answered, BodyFraming};
use super::{Socket, Upgraded};
use crate::proxy::body::{Body, BodyError};
use crate::proxy::woken::Woken;

/// Bytes of a response that are collected before they are written.
const WRITE_BYTES: usize = 32 << 10;
/// Space for a head and a small body.
const WRITE_START: usize = 2 << 10;
/// Time for a client to close its side after the last response, or to send more.
const LINGER: Duration = Duration::from_secs(1);
/// Longest time for what a client still sends after the last response.
const LINGER_MAX: Duration = Duration::from_secs(5);

/// Limits of a client's connection.
#[derive(Debug, Clone, Copy)]
pub(in crate::proxy) struct ServerLimits {
    pub head: HeadLimits,
    /// Time for the head of a request, and for an idle connection.
    pub head_timeout: Duration,
    /// Time without any byte from or to the client while its request is served. It ends after twice this time.
    pub idle_timeout: Duration,
    /// Time for the last request of a client that cannot know that its connection is about to close.
    pub last_request_timeout: Duration,
}

/// The end of a connection that is not orderly.
#[derive(Debug, thiserror::Error)]
pub(in crate::proxy) enum ServerError {
    #[error("failed to read from the client, or it disconnected during a request")]
    Read(#[source] io::Error),
    #[error("failed to write to the client")]
    Write(#[source] io::Error),
    #[error("the request is invalid")]
    Head(#[from] RequestHeadError),
    #[error("the client sent no request in time")]
    Timeout,
    #[error("the response ended early")]
    Response(#[source] Box<BodyError>),
    #[error("the body of the response differs from its length")]
    ResponseLength,
}

/// An extension of a request with an `Upgrade` header: receives the connection after the response 101 was sent.
#[derive(Clone)]
pub(in crate::proxy) struct OnUpgrade(Arc<Mutex<Option<oneshot::Receiver<Upgraded>>>>);

impl OnUpgrade {
    /// Waits for the connection; `None` if it was closed instead.
    pub(in crate::proxy) async fn upgraded(self) -> Option<Upgraded> {
        let receiver = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        receiver?.await.ok()
    }
}

struct Server<F, E, O> {
    io: SharedIo,
    limits: ServerLimits,
    service: F,
    head: HeadSearch,
    ending: Woken<E>,
    /// Ends the connection of a client that sends its request too slowly, or that makes no progress.
    overdue: Woken<O>,
    /// Waits for the last request, once `ending` has completed.
    last_request: Option<Pin<Box<Sleep>>>,
}

struct ResponseWriter {
    body: Body,
    framing: BodyFraming,
    accepts_trailers: bool,
    is_complete: bool,
    /// The cause of a response that ends early.
    failure: Option<ServerError>,
}

/// The state of a connection after a response.
enum After {
    Next,
    Close,
    Switched,
}

/// Serves a connection, of which `start` was read already, until the client closes it or `ending` completes. A request in
/// flight is finished first; if there is none, the client may send a last one for a moment. Its response announces that the
/// connection closes, so that no request is lost.
pub(in crate::proxy) async fn serve<F, R>(
    socket: impl Socket + 'static,
    start: BytesMut,
    limits: ServerLimits,
    ending: impl Future<Output = ()>,
    service: F,
) -> Result<(), ServerError>
where
    F: Fn(Request<RequestStream>) -> R,
    R: Future<Output = Response<Body>>,
{
    let io = SharedIo::new(Box::new(socket), start);
    let (head_io, progress_io) = (io.clone(), io.clone());
    let overdue = Woken::new(async move {
        tokio::select! {
            () = late_head(head_io, limits.head_timeout) => {}
            () = no_progress(progress_io, limits.idle_timeout) => {}
        }
    });
    let (head, ending) = (HeadSearch::default(), Woken::new(ending));
    let mut server = Server { io, limits, service, head, ending, overdue, last_request: None };
    server.run().await
}

/// Waits until a head is not complete in time.
async fn late_head(io: SharedIo, limit: Duration) {
    let mut wake_at = Instant::now() + limit;
    loop {
        tokio::time::sleep_until(wake_at).await;
        let now = Instant::now();
        wake_at = match io.lock().head_deadline {
            Some(deadline) if deadline <= now => return,
            Some(deadline) => deadline,
            None => now + limit,
        };
    }
}

/// Waits until nothing was read or written for at least `limit` while a request was served. The client may have
/// disconnected: its connection is not read while a body waits for the endpoint.
async fn no_progress(io: SharedIo, limit: Duration) {
    loop {
        let before = io.lock().progress;
        tokio::time::sleep(limit).await;
        let io = io.lock();
        if io.head_deadline.is_none() && io.progress == before {
            return;
        }
    }
}

impl<F, R, E, O> Server<F, E, O>
where
    F: Fn(Request<RequestStream>) -> R,
    R: Future<Output = Response<Body>>,
    E: Future<Output = ()>,
    O: Future<Output = ()>,
{
    async fn run(&mut self) -> Result<(), ServerError> {
        loop {
            let head = match std::future::poll_fn(|context| self.poll_head(context)).await {
                Ok(Some(head)) => head,
                Ok(None) => break,
                Err(error) => {
                    self.reject(&error);
                    self.close().await;
                    return Err(error);
                }
            };
            match self.exchange(head).await? {
                After::Next => {}
                After::Close => break,
                After::Switched => return Ok(()),
            }
        }
        self.close().await;
        Ok(())
    }

    /// Waits for the head of a request; `None` if there is no further one.
    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<RequestHead>, ServerError>> {
        let mut io = self.io.lock();
        loop {
            if let Some(head) = request_head::read(&mut self.head, &mut io.read, &self.limits.head)? {
                io.head_deadline = None;
                return Poll::Ready(Ok(Some(head)));
            }
            match io.poll_fill(context) {
                Poll::Ready(Ok(0)) if io.read.is_empty() => return Poll::Ready(Ok(None)),
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(ServerError::Read(io::ErrorKind::UnexpectedEof.into())));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(ServerError::Read(error))),
                Poll::Pending => break,
            }
        }
        if io.head_deadline.is_none() {
            io.head_deadline = Some(Instant::now() + self.limits.head_timeout);
        }
        let is_partial = !io.read.is_empty();
        drop(io);
        if self.overdue.is_complete(context) {
            return Poll::Ready(Err(ServerError::Timeout));
        }
        // A request that has begun to arrive is served.
        if is_partial || !self.ending.is_complete(context) {
            return Poll::Pending;
        }
        let limit = self.limits.last_request_timeout;
        let last_request = self.last_request.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        last_request.as_mut().poll(context).map(|()| Ok(None))
    }

    /// Appends the response to a request that was not read completely.
    fn reject(&self, error: &ServerError) {
        let mut io = self.io.lock();
        let status = match error {
            ServerError::Head(error) => error.status(),
            ServerError::Timeout if !io.read.is_empty() => StatusCode::REQUEST_TIMEOUT,
            _ => return,
        };
        response_head::encode_error(status, &mut io.write);
    }

    /// Serves a request.
    async fn exchange(&mut self, head: RequestHead) -> Result<After, ServerError> {
        let RequestHead { parts, body, keep_alive, expects_continue, accepts_trailers } = head;
        let answered = Answered { method: parts.method.clone(), version: parts.version };
        let mut request = Request::from_parts(parts, self.io.begin(body, expects_continue));
        let can_upgrade = answered.version == Version::HTTP_11 && request.headers().contains_key(UPGRADE);
        let upgrade = can_upgrade.then(|| {
            let (sender, receiver) = oneshot::channel();
            request.extensions_mut().insert(OnUpgrade(Arc::new(Mutex::new(Some(receiver)))));
            sender
        });
        let (parts, body) = self.respond(request).await?.into_parts();
        let is_ending = std::future::poll_fn(|context| Poll::Ready(self.ending.is_complete(context))).await;
        let is_switch = parts.status == StatusCode::SWITCHING_PROTOCOLS;
        let framing = response_head::framing(&answered, parts.status, body.size_hint());
        let is_last = {
            let mut io = self.io.lock();
            io.expects_continue = false;
            let is_last = is_ending || !keep_alive || framing == BodyFraming::Close || !io.skip_body();
            io.write.reserve(WRITE_START);
            response_head::encode(&parts, &answered, framing, is_last, &mut io.write);
            is_last
        };
        drop(parts);
        let is_complete = framing == BodyFraming::None;
        let mut writer = ResponseWriter { body, framing, accepts_trailers, is_complete, failure: None };
        std::future::poll_fn(|context| match writer.poll(&self.io, context) {
            Poll::Pending if self.overdue.is_complete(context) => Poll::Ready(Err(timed_out())),
            polled => polled,
        })
        .await?;
        drop(writer);
        let mut io = self.io.lock();
        if is_switch {
            if let Some(upgrade) = upgrade {
                let _ = upgrade.send(Upgraded(io.take_stream()));
            }
            return Ok(After::Switched);
        }
        io.free_buffers();
        Ok(if is_last { After::Close } else { After::Next })
    }

    /// Calls the service, for as long as the client stays connected.
    async fn respond(&mut self, request: Request<RequestStream>) -> Result<Response<Body>, ServerError> {
        // On the heap: a connection without a request needs no space for it.
        let mut responding = Box::pin((self.service)(request));
        std::future::poll_fn(|context| {
            if let Poll::Ready(response) = responding.as_mut().poll(context) {
                return Poll::Ready(Ok(response));
            }
            let closed = self.io.lock().poll_closed(context);
            match closed {
                Poll::Ready(error) => Poll::Ready(Err(ServerError::Read(error))),
                Poll::Pending if self.overdue.is_complete(context) => Poll::Ready(Err(timed_out())),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Closes the connection after what was written, then waits until the client has closed it. A connection that is closed
    /// before the client's last bytes have arrived is reset, and the reset may overtake the response.
    async fn close(&self) {
        let closing = async {
            std::future::poll_fn(|context| self.io.lock().poll_shutdown(context)).await?;
            loop {
                let reading = std::future::poll_fn(|context| {
                    let mut io = self.io.lock();
                    io.read.clear();
                    io.poll_fill(context)
                });
                match tokio::time::timeout(LINGER, reading).await {
                    Ok(Ok(length)) if length > 0 => {}
                    _ => return io::Result::Ok(()),
                }
            }
        };
        let _ = tokio::time::timeout(LINGER_MAX, closing).await;
    }
}

fn timed_out() -> ServerError {
    ServerError::Read(io::ErrorKind::TimedOut.into())
}

impl ResponseWriter {
    /// Writes the response until its end. What precedes a failure is written, too.
    fn poll(&mut self, shared: &SharedIo, context: &mut Context<'_>) -> Poll<Result<(), ServerError>> {
        loop {
            let mut is_waiting = false;
            while !self.is_complete && !is_waiting && shared.lock().write.len() < WRITE_BYTES {
                match self.poll_part(shared, context) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => (self.is_complete, self.failure) = (true, Some(error)),
                    Poll::Pending => is_waiting = true,
                }
            }
            let mut io = shared.lock();
            ready!(io.poll_flush(context)).map_err(ServerError::Write)?;
            if self.is_complete {
                return Poll::Ready(self.failure.take().map_or(Ok(()), Err));
            }
            if is_waiting {
                return io.poll_closed(context).map(|error| Err(ServerError::Read(error)));
            }
        }
    }

    /// Appends a part of the body, or its end.
    fn poll_part(&mut self, shared: &SharedIo, context: &mut Context<'_>) -> Poll<Result<(), ServerError>> {
        // Without the lock: the body may read the body of the request.
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Err(ServerError::Response(Box::new(error)))),
            None => return Poll::Ready(self.end(None, &mut shared.lock().write)),
        };
        self.append(frame, &mut shared.lock().write)?;
        if !self.is_complete && self.body.is_end_stream() {
            self.end(None, &mut shared.lock().write)?;
        }
        Poll::Ready(Ok(()))
    }

    fn append(&mut self, frame: Frame<Bytes>, out: &mut BytesMut) -> Result<(), ServerError> {
        match frame.into_data() {
            Ok(data) if response_head::put_data(&data, &mut self.framing, out) => Ok(()),
            Ok(_) => Err(ServerError::ResponseLength),
            Err(frame) => self.end(frame.trailers_ref().filter(|_| self.accepts_trailers), out),
        }
    }

    fn end(&mut self, trailers: Option<&HeaderMap>, out: &mut BytesMut) -> Result<(), ServerError> {
        self.is_complete = true;
        if response_head::put_end(trailers, self.framing, out) { Ok(()) } else { Err(ServerError::ResponseLength) }
    }
}

#[cfg(test)]
mod tests;
