//! HTTP/1.1 of the ingress proxy, compared with hyper.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use ingress::proxy::http1_fuzz::{self, Accepted};

/// Polls of a connection whose peer is in memory.
const POLLS_MAX: usize = 10_000;

/// Checks an input on its own, and that hyper reads the same requests from it: both may reject it earlier.
pub fn check(input: &[u8]) {
    http1_fuzz::check(input);
    if input.first().is_none_or(|selector| !http1_fuzz::is_of_client(*selector)) {
        return;
    }
    let input = &input[1..];
    let (own, other) = (http1_fuzz::requests(input, usize::MAX), requests(input));
    for (own, other) in own.iter().zip(&other) {
        // hyper reads some extensions of chunks that are rejected here.
        if own.body.is_some() {
            assert_eq!(own, other, "hyper reads another request");
        }
    }
}

/// Returns the requests that hyper reads.
fn requests(input: &[u8]) -> Vec<Accepted> {
    let accepted = Rc::new(RefCell::new(Vec::new()));
    let service = service_fn(|request: Request<Incoming>| {
        let accepted = Rc::clone(&accepted);
        async move {
            let (parts, body) = request.into_parts();
            let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
            let start = if path.starts_with(['/', '*']) { "" } else { "/" };
            let body = body.collect().await.ok().map(|body| body.to_bytes().to_vec());
            // The proxy does not know the target of a request whose body ends early.
            let target = if body.is_some() { format!("{start}{path}") } else { String::new() };
            accepted.borrow_mut().push(Accepted { method: parts.method, target, body });
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let mut serving = pin!(http1::Builder::new().serve_connection(Memory { input: input.to_vec(), read: 0 }, service));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..POLLS_MAX {
        if serving.as_mut().poll(&mut context).is_ready() {
            break;
        }
    }
    accepted.take()
}

/// A client that sends an input, and then closes.
struct Memory {
    input: Vec<u8>,
    read: usize,
}

impl Read for Memory {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let length = (self.input.len() - self.read).min(buffer.remaining());
        buffer.put_slice(&self.input[self.read..self.read + length]);
        self.read += length;
        Poll::Ready(Ok(()))
    }
}

impl Write for Memory {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
