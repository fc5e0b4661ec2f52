//! A request in flight: its body is written while the response is awaited, and while the response streams.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{Request, StatusCode};
use http_body::{Body as _, Frame};
use tokio::io::AsyncWrite as _;

use super::head::{self, HeadSearch, RequestFraming, ResponseHead};
use super::{Failed, Http1Error, Stream};
use crate::proxy::body::{Body, BodyError};

/// Bytes of a request body that are collected before they are written.
const WRITE_BYTES: usize = 32 << 10;
/// Space for the head of a request.
const WRITE_START: usize = 1 << 10;
/// Informational responses before the final one.
const INFORMATIONAL_MAX: usize = 16;

pub(super) struct InFlight {
    stream: Stream,
    request: Request<Body>,
    has_body: bool,
    sending: Sending,
    /// Whether a byte was written, or taken from the body.
    is_sent: bool,
    head: HeadSearch,
    informational: usize,
}

/// The rest of the request.
enum Sending {
    /// The body, with the bytes that are left of a known length.
    Body(Option<u64>),
    Flush,
    Done,
    /// The endpoint reads no more. It may have answered before.
    Broken(std::io::Error),
}

impl InFlight {
    pub(super) fn new(mut stream: Stream, request: Request<Body>) -> InFlight {
        let framing = RequestFraming::of(&request);
        stream.write.clear();
        stream.write.reserve(WRITE_START);
        head::encode(&request, framing, &mut stream.write);
        let sending = match framing {
            RequestFraming::Empty => Sending::Flush,
            RequestFraming::Length(length) => Sending::Body(Some(length)),
            RequestFraming::Chunked => Sending::Body(None),
        };
        let has_body = framing != RequestFraming::Empty;
        InFlight { stream, request, has_body, sending, is_sent: false, head: HeadSearch::default(), informational: 0 }
    }

    pub(super) fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    pub(super) fn into_stream(self) -> Stream {
        self.stream
    }

    /// Whether the whole request was written.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.sending, Sending::Done)
    }

    /// Gives the request back if its body is untouched.
    pub(super) fn fail(self, error: Http1Error) -> Failed {
        let is_untouched = !self.is_sent || !self.has_body;
        Failed { error, request: is_untouched.then_some(self.request), is_sent: self.is_sent }
    }

    /// Waits for the head of the final response, or of a switch of protocols.
    pub(super) fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<ResponseHead, Http1Error>> {
        self.poll_send(context)?;
        loop {
            let Some(head) = head::read(&mut self.head, &mut self.stream.read, self.request.method())? else {
                match ready!(self.stream.poll_read(context)) {
                    Ok(()) => continue,
                    Err(error) => return Poll::Ready(Err(self.cause(error))),
                }
            };
            if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Poll::Ready(Ok(head));
            }
            self.informational += 1;
            if self.informational > INFORMATIONAL_MAX {
                return Poll::Ready(Err(head::HeadError::Informational.into()));
            }
        }
    }

    /// Writes as much of the request as the endpoint takes. An error concerns the body; an endpoint that takes no more may
    /// have answered.
    pub(super) fn poll_send(&mut self, context: &mut Context<'_>) -> Result<(), Http1Error> {
        loop {
            match &self.sending {
                Sending::Done | Sending::Broken(_) => return Ok(()),
                // The head waits for the first bytes of the body, so that both are sent in one write.
                Sending::Body(_) if self.stream.write.len() < WRITE_BYTES => {
                    match Pin::new(self.request.body_mut()).poll_frame(context) {
                        Poll::Ready(frame) => self.append(frame)?,
                        Poll::Pending => {
                            let _ = self.poll_write(context);
                            return Ok(());
                        }
                    }
                }
                Sending::Body(_) | Sending::Flush => {
                    if self.poll_write(context).is_pending() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Appends a frame of the body, or its end.
    fn append(&mut self, frame: Option<Result<Frame<Bytes>, BodyError>>) -> Result<(), Http1Error> {
        let (Sending::Body(left), out) = (&mut self.sending, &mut self.stream.write) else { return Ok(()) };
        self.is_sent = true;
        let Some(frame) = frame else {
            match left {
                Some(0) => {}
                Some(_) => return Err(Http1Error::RequestLength),
                None => out.put_slice(b"0\r\n\r\n"),
            }
            self.sending = Sending::Flush;
            return Ok(());
        };
        // Trailers are not forwarded: an HTTP/1 endpoint has to ask for them.
        let frame = frame.map_err(|error| Http1Error::Request(Box::new(error)))?;
        let Ok(data) = frame.into_data() else { return Ok(()) };
        match left {
            Some(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(Http1Error::RequestLength)?;
                out.put(data);
            }
            None if data.is_empty() => {}
            None => {
                head::put_chunk_size(data.len(), out);
                out.put(data);
                out.put_slice(b"\r\n");
            }
        }
        Ok(())
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let written = loop {
            let (socket, left) = (Pin::new(&mut self.stream.socket), &mut self.stream.write);
            if left.is_empty() {
                break ready!(socket.poll_flush(context));
            }
            match ready!(socket.poll_write(context, left)) {
                Ok(0) => break Err(std::io::ErrorKind::WriteZero.into()),
                Ok(length) => {
                    left.advance(length);
                    self.is_sent = true;
                }
                Err(error) => break Err(error),
            }
        };
        match written {
            Ok(()) if matches!(self.sending, Sending::Flush) => {
                self.sending = Sending::Done;
                self.stream.write = BytesMut::new();
            }
            Ok(()) => {}
            Err(error) => self.sending = Sending::Broken(error),
        }
        Poll::Ready(())
    }

    /// Returns the first error of the connection.
    fn cause(&mut self, error: Http1Error) -> Http1Error {
        match std::mem::replace(&mut self.sending, Sending::Done) {
            Sending::Broken(earlier) => Http1Error::Write(earlier),
            Sending::Body(_) | Sending::Flush | Sending::Done => error,
        }
    }
}
