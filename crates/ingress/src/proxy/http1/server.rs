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
use tokio::time::Instant;

use super::client_io::{RequestStream, SharedIo};
use super::decoder::Decoder;
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
/// Time and bytes for what a client still sends after the last response. A connection that is closed with unread bytes is
/// reset, and the reset may overtake the response.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1 << 20;

/// Limits of a client's connection.
#[derive(Debug, Clone, Copy)]
pub(in crate::proxy) struct ServerLimits {
    pub head: HeadLimits,
    /// Time for the head of a request, and for an idle connection.
    pub head_timeout: Duration,
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
    overdue: Woken<O>,
}

struct ResponseWriter {
    body: Body,
    framing: BodyFraming,
    accepts_trailers: bool,
    is_complete: bool,
}

/// The state of a connection after a response.
enum After {
    Next,
    Close,
    Switched,
}

/// Serves a connection, of which `start` was read already, until the client closes it or `ending` completes. A request in
/// flight is finished first.
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
    let overdue = Woken::new(overdue(io.clone(), limits.head_timeout));
    let mut server = Server { io, limits, service, head: HeadSearch::default(), ending: Woken::new(ending), overdue };
    server.run().await
}

/// Waits until a head is not complete in time.
async fn overdue(io: SharedIo, limit: Duration) {
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
        if self.ending.is_complete(context) && !is_partial { Poll::Ready(Ok(None)) } else { Poll::Pending }
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
        // Bytes that follow are no request.
        io.body = Decoder::Close;
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
        let mut writer = ResponseWriter { body, framing, accepts_trailers, is_complete };
        std::future::poll_fn(|context| writer.poll(&self.io, context)).await?;
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
    async fn respond(&self, request: Request<RequestStream>) -> Result<Response<Body>, ServerError> {
        // On the heap: a connection without a request needs no space for it.
        let mut responding = Box::pin((self.service)(request));
        std::future::poll_fn(|context| match responding.as_mut().poll(context) {
            Poll::Ready(response) => Poll::Ready(Ok(response)),
            Poll::Pending => self.io.lock().poll_closed(context).map(|error| Err(ServerError::Read(error))),
        })
        .await
    }

    /// Closes the connection after what was written. The client may be gone already.
    async fn close(&self) {
        let closing = async {
            std::future::poll_fn(|context| self.io.lock().poll_shutdown(context)).await?;
            let is_unread = {
                let io = self.io.lock();
                !io.body.is_done() || !io.read.is_empty()
            };
            if !is_unread {
                return Ok(());
            }
            let mut left = LINGER_BYTES;
            loop {
                let length = std::future::poll_fn(|context| {
                    let mut io = self.io.lock();
                    io.read.clear();
                    io.poll_fill(context)
                });
                match length.await? {
                    length if length > 0 && length < left => left -= length,
                    _ => return io::Result::Ok(()),
                }
            }
        };
        let _ = tokio::time::timeout(LINGER, closing).await;
    }
}

impl ResponseWriter {
    /// Writes the response until its end.
    fn poll(&mut self, shared: &SharedIo, context: &mut Context<'_>) -> Poll<Result<(), ServerError>> {
        loop {
            let mut is_waiting = false;
            while !self.is_complete && !is_waiting && shared.lock().write.len() < WRITE_BYTES {
                // Without the lock: the body may read the body of the request.
                match Pin::new(&mut self.body).poll_frame(context) {
                    Poll::Ready(Some(Ok(frame))) => {
                        self.append(frame, &mut shared.lock().write)?;
                        if !self.is_complete && self.body.is_end_stream() {
                            self.end(None, &mut shared.lock().write)?;
                        }
                    }
                    Poll::Ready(Some(Err(error))) => {
                        return Poll::Ready(Err(ServerError::Response(Box::new(error))));
                    }
                    Poll::Ready(None) => self.end(None, &mut shared.lock().write)?,
                    Poll::Pending => is_waiting = true,
                }
            }
            let mut io = shared.lock();
            ready!(io.poll_flush(context)).map_err(ServerError::Write)?;
            if self.is_complete {
                return Poll::Ready(Ok(()));
            }
            if is_waiting {
                return io.poll_closed(context).map(|error| Err(ServerError::Read(error)));
            }
        }
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
