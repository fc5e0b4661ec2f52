//! The body of a response, which returns its connection to the pool when it has ended.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::Response;
use http_body::{Frame, SizeHint};

use super::chunked::{Chunked, Piece};
use super::decoder::Decoder;
use super::head::{ResponseFraming, ResponseHead};
use super::in_flight::InFlight;
use super::{Http1Error, Stream};

/// Takes a connection whose response has ended, if it can be used again.
pub(in crate::proxy) trait Recycle: Unpin {
    fn put(&self, stream: Stream);
}

pub(in crate::proxy) struct ResponseStream<R> {
    /// `None` when the body has ended.
    in_flight: Option<Box<InFlight>>,
    decoder: Decoder,
    keep_alive: bool,
    recycle: R,
}

impl<R: Recycle> ResponseStream<R> {
    pub(super) fn start(in_flight: Box<InFlight>, head: ResponseHead, recycle: R) -> Response<Self> {
        let decoder = match head.framing {
            ResponseFraming::Length(length) => Decoder::Length(length),
            ResponseFraming::Chunked => Decoder::Chunked(Chunked::Size),
            ResponseFraming::Close => Decoder::Close,
        };
        let is_empty = head.framing == ResponseFraming::Length(0);
        let mut body = Self { in_flight: Some(in_flight), decoder, keep_alive: head.keep_alive, recycle };
        if is_empty {
            body.end();
        }
        let mut response = Response::new(body);
        (*response.status_mut(), *response.headers_mut()) = (head.status, head.headers);
        response
    }

    /// Gives the connection back. It is closed if anything of the request or after the response is left.
    fn end(&mut self) {
        let Some(ended) = self.in_flight.take() else { return };
        let is_reusable = self.keep_alive && ended.is_complete();
        let mut stream = ended.into_stream();
        if is_reusable && stream.read.is_empty() {
            stream.read = BytesMut::new();
            self.recycle.put(stream);
        }
    }

    /// Takes a part of the body that was read already.
    fn decode(&mut self) -> Result<Option<Piece>, Http1Error> {
        let Some(in_flight) = &mut self.in_flight else { return Ok(None) };
        Ok(self.decoder.decode(&mut in_flight.stream().read)?)
    }
}

impl<R: Recycle> http_body::Body for ResponseStream<R> {
    type Data = Bytes;
    type Error = Http1Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Http1Error>>> {
        let this = &mut *self;
        loop {
            match this.decode()? {
                Some(Piece::Data(data)) => {
                    if this.decoder.is_done() {
                        this.end();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Piece::End(trailers)) => {
                    this.end();
                    return Poll::Ready((!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers))));
                }
                None => {}
            }
            let Some(in_flight) = &mut this.in_flight else { return Poll::Ready(None) };
            in_flight.poll_send(context)?;
            match ready!(in_flight.stream().poll_read(context)) {
                Ok(()) => {}
                Err(Http1Error::Closed) if matches!(this.decoder, Decoder::Close) => {
                    this.in_flight = None;
                    return Poll::Ready(None);
                }
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.in_flight.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.decoder {
            Decoder::Length(left) => SizeHint::with_exact(*left),
            Decoder::Chunked(_) | Decoder::Close => SizeHint::default(),
        }
    }
}
