//! HTTP/1.1, from clients (`server`) and towards endpoints. The task of a client's connection owns the connection to the
//! endpoint until the response has ended: no task or channel stands between them.
//!
//! ```text
//! Stream ──send──> InFlight ──> head ──> ResponseStream ──> Recycle: the pool
//!                                └──101──> Upgraded
//! ```

mod chunked;
mod client_io;
mod decoder;
pub mod fuzz;
mod head;
mod in_flight;
mod request_head;
mod response;
mod response_head;
mod server;

use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::BytesMut;
use http::{Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::body::{Body, BodyError};
pub(super) use client_io::{RequestBodyError, RequestStream};
use in_flight::InFlight;
pub(super) use request_head::HeadLimits;
pub(super) use response::{Recycle, ResponseStream};
pub(super) use server::{OnUpgrade, ServerError, ServerLimits, serve};

/// Bytes that are read at once, on the stack: a connection that waits for a response has no buffer.
const READ_BYTES: usize = 16 << 10;

/// A TCP or TLS connection.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

/// A connection without a request.
pub(super) struct Stream {
    socket: Box<dyn Socket>,
    read: BytesMut,
    write: BytesMut,
}

/// A connection that switched protocols.
pub(super) struct Upgraded(Stream);

/// The answer of an endpoint.
pub(super) enum Answer<R> {
    Response(Response<ResponseStream<R>>),
    Switched(Response<()>, Upgraded),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Http1Error {
    #[error("failed to read from the endpoint")]
    Read(#[source] io::Error),
    #[error("failed to write to the endpoint")]
    Write(#[source] io::Error),
    #[error("the endpoint closed the connection")]
    Closed,
    #[error("the endpoint sent an invalid response")]
    Head(#[from] head::HeadError),
    #[error("the endpoint sent an invalid body")]
    Chunk(#[from] chunked::ChunkError),
    #[error("the request body ended early")]
    Request(#[source] Box<BodyError>),
    #[error("the request body differs from its length")]
    RequestLength,
    #[error("the endpoint switched protocols before the request ended")]
    Switched,
}

/// A request without a response.
pub(super) struct Failed {
    pub error: Http1Error,
    /// The request, if its body is untouched.
    pub request: Option<Request<Body>>,
    /// Whether the endpoint received a part of the request.
    pub is_sent: bool,
}

impl Stream {
    pub(super) fn new(socket: impl Socket + 'static) -> Stream {
        Stream { socket: Box::new(socket), read: BytesMut::new(), write: BytesMut::new() }
    }

    /// Whether the endpoint has neither closed an idle connection nor sent anything.
    pub(super) fn is_idle(&mut self) -> bool {
        let (mut byte, mut context) = ([0], Context::from_waker(Waker::noop()));
        let reading = std::future::poll_fn(|context| {
            Pin::new(&mut self.socket).poll_read(context, &mut ReadBuf::new(&mut byte)).map(drop)
        });
        // A task that has used up its budget would find every connection idle.
        self.read.is_empty() && pin!(tokio::task::unconstrained(reading)).poll(&mut context).is_pending()
    }

    /// Sends a request, and returns when the head of the response has arrived.
    pub(super) async fn send<R: Recycle>(self, request: Request<Body>, recycle: R) -> Result<Answer<R>, Failed> {
        let mut in_flight = Box::new(InFlight::new(self, request));
        match std::future::poll_fn(|context| in_flight.poll_head(context)).await {
            // The rest of the request would be taken for bytes of the new protocol.
            Ok(head) if head.status == StatusCode::SWITCHING_PROTOCOLS && !in_flight.is_complete() => {
                Err(in_flight.fail(Http1Error::Switched))
            }
            Ok(head) if head.status == StatusCode::SWITCHING_PROTOCOLS => {
                let mut response = Response::new(());
                (*response.status_mut(), *response.headers_mut()) = (head.status, head.headers);
                Ok(Answer::Switched(response, Upgraded(in_flight.into_stream())))
            }
            Ok(head) => Ok(Answer::Response(ResponseStream::start(in_flight, head, recycle))),
            Err(error) => Err(in_flight.fail(error)),
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Http1Error>> {
        match ready!(poll_read_into(&mut self.socket, &mut self.read, context)) {
            Ok(0) => Poll::Ready(Err(Http1Error::Closed)),
            Ok(_) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(Http1Error::Read(error))),
        }
    }
}

/// Appends what a socket has to a buffer, which grows by no more. Returns 0 at the end.
fn poll_read_into(
    socket: &mut Box<dyn Socket>,
    buffer: &mut BytesMut,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
    let mut read = ReadBuf::uninit(&mut space);
    ready!(Pin::new(socket).poll_read(context, &mut read))?;
    buffer.extend_from_slice(read.filled());
    Poll::Ready(Ok(read.filled().len()))
}

impl AsyncRead for Upgraded {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Upgraded(stream) = self.get_mut();
        if stream.read.is_empty() {
            return Pin::new(&mut stream.socket).poll_read(context, buffer);
        }
        // Bytes of the new protocol that arrived with the response.
        let length = stream.read.len().min(buffer.remaining());
        buffer.put_slice(&stream.read.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
