//! The connection of a client, which the body of a request and the writer of its response share.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use tokio::io::AsyncWrite as _;
use tokio::time::Instant;

use super::chunked::{ChunkError, Piece};
use super::decoder::Decoder;
use super::{Socket, Stream};

/// Bytes that a client may send ahead of the response to its last request.
const READ_AHEAD: usize = 16 << 10;

/// Shared within one task: the lock is never contended.
#[derive(Clone)]
pub(super) struct SharedIo(Arc<Mutex<ClientIo>>);

pub(super) struct ClientIo {
    socket: Box<dyn Socket>,
    pub read: BytesMut,
    pub write: BytesMut,
    /// The rest of the body of the request.
    pub body: Decoder,
    /// Number of the request. The body of an earlier one reads nothing.
    number: u64,
    /// The client waits for `100 Continue`, and no response has begun.
    pub expects_continue: bool,
    /// When the next head has to be complete; `None` while a request is served.
    pub head_deadline: Option<Instant>,
    /// Counts requests, reads and writes.
    pub progress: usize,
}

/// The body of a request. It reads from the connection when it is polled.
pub(in crate::proxy) struct RequestStream {
    /// `None` when the body has ended.
    io: Option<SharedIo>,
    number: u64,
}

#[derive(Debug, thiserror::Error)]
pub(in crate::proxy) enum RequestBodyError {
    #[error("failed to read from the client")]
    Read(#[source] io::Error),
    #[error("the client closed the connection")]
    Closed,
    #[error("the client sent an invalid body")]
    Chunk(#[from] ChunkError),
}

impl SharedIo {
    pub(super) fn new(socket: Box<dyn Socket>, start: BytesMut) -> SharedIo {
        let io = ClientIo {
            socket,
            read: start,
            write: BytesMut::new(),
            body: Decoder::Length(0),
            number: 0,
            expects_continue: false,
            head_deadline: None,
            progress: 0,
        };
        SharedIo(Arc::new(Mutex::new(io)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ClientIo> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request, and returns its body.
    pub(super) fn begin(&self, body: Decoder, expects_continue: bool) -> RequestStream {
        let mut io = self.lock();
        io.number += 1;
        io.progress += 1;
        (io.body, io.expects_continue) = (body, expects_continue);
        RequestStream { io: (!io.body.is_done()).then(|| self.clone()), number: io.number }
    }
}

impl ClientIo {
    /// Reads what the socket has. Returns 0 at the end.
    pub(super) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = ready!(super::poll_read_into(&mut self.socket, &mut self.read, context));
        self.progress += 1;
        Poll::Ready(read)
    }

    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.write.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_write(context, &self.write))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                length => {
                    self.write.advance(length);
                    self.progress += 1;
                }
            }
        }
        Pin::new(&mut self.socket).poll_flush(context)
    }

    pub(super) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(context))?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    /// Waits until the client has disconnected, while its request is served.
    pub(super) fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        // The rest of a body is read by the body.
        while self.body.is_done() && self.read.len() < READ_AHEAD {
            match ready!(self.poll_fill(context)) {
                Ok(0) => return Poll::Ready(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) => return Poll::Ready(error),
            }
        }
        Poll::Pending
    }

    /// Drops the rest of a body that has arrived already. Returns whether that was all of it.
    pub(super) fn skip_body(&mut self) -> bool {
        while !self.body.is_done() {
            match self.body.decode(&mut self.read) {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }

    /// Frees empty buffers.
    pub(super) fn free_buffers(&mut self) {
        for buffer in [&mut self.read, &mut self.write] {
            if buffer.is_empty() {
                *buffer = BytesMut::new();
            }
        }
    }

    /// Takes the connection for another protocol.
    pub(super) fn take_stream(&mut self) -> Stream {
        let socket =
            std::mem::replace(&mut self.socket, Box::new(tokio::io::join(tokio::io::empty(), tokio::io::sink())));
        Stream { socket, read: std::mem::take(&mut self.read), write: BytesMut::new() }
    }

    fn poll_body(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, RequestBodyError>>> {
        loop {
            match self.body.decode(&mut self.read)? {
                Some(Piece::Data(data)) => return Poll::Ready(Some(Ok(data))),
                Some(Piece::End(_)) => return Poll::Ready(None),
                None => {}
            }
            if std::mem::take(&mut self.expects_continue) {
                self.write.put_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
            if !self.write.is_empty() {
                // A failure to write is reported with the response.
                let _ = self.poll_flush(context);
            }
            match ready!(self.poll_fill(context)).map_err(RequestBodyError::Read)? {
                0 => return Poll::Ready(Some(Err(RequestBodyError::Closed))),
                _ => self.expects_continue = false,
            }
        }
    }
}

impl http_body::Body for RequestStream {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let Some(shared) = &self.io else { return Poll::Ready(None) };
        let polled = {
            let mut io = shared.lock();
            if io.number == self.number { io.poll_body(context) } else { Poll::Ready(None) }
        };
        let data = ready!(polled);
        if data.is_none() {
            self.io = None;
        }
        Poll::Ready(data.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.io.as_ref().is_none_or(|shared| {
            let io = shared.lock();
            io.number != self.number || io.body.is_done()
        })
    }

    fn size_hint(&self) -> SizeHint {
        match self.io.as_ref().map(SharedIo::lock) {
            None => SizeHint::with_exact(0),
            Some(io) => match io.body {
                Decoder::Length(left) if io.number == self.number => SizeHint::with_exact(left),
                _ => SizeHint::default(),
            },
        }
    }
}
