//! Fuzz target of HTTP/1.1: what the proxy writes is one unambiguous message for each that it accepts, however the input
//! arrives. Also used to replay its corpus.

mod strict;

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};

use super::{Answer, HeadLimits, Recycle, RequestStream, ServerError, ServerLimits, Stream, serve};
use crate::proxy::body::{self, Body, BodyError};
use crate::proxy::headers;
use strict::{Message, Start};

const LIMITS: ServerLimits = ServerLimits {
    head: HeadLimits { headers_max: 100, bytes_max: 1 << 10 },
    head_timeout: Duration::from_secs(60),
    idle_timeout: Duration::from_secs(60),
    last_request_timeout: Duration::from_secs(1),
};
/// The answer to requests of the fuzzer.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
/// Requests for responses of the fuzzer.
const REQUESTS: [&[u8]; 4] = [
    b"GET / HTTP/1.1\r\nte: trailers\r\nconnection: close\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nconnection: close\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
];

/// A request that the proxy accepted.
#[derive(Debug, PartialEq, Eq)]
pub struct Accepted {
    pub method: Method,
    pub target: String,
    /// The body that the endpoint receives; `None` if it ended early.
    pub body: Option<Vec<u8>>,
}

/// A peer that sends an input in pieces and then closes, and keeps what it receives.
struct Script {
    input: Vec<u8>,
    sent: usize,
    piece_bytes: usize,
    received: Received,
}

type Received = Arc<Mutex<Vec<u8>>>;

struct Discard;

/// Checks an input, whose first byte selects what the rest is: requests of a client or a response of an endpoint.
pub fn check(input: &[u8]) {
    let Some((selector, input)) = input.split_first() else { return };
    let piece_bytes = usize::from(selector >> 3) + 1;
    if is_of_client(*selector) {
        let whole = requests(input, usize::MAX);
        assert_eq!(whole, requests(input, piece_bytes), "the pieces matter");
    } else {
        check_response(REQUESTS[usize::from(selector & 0b11)], input, piece_bytes);
    }
}

/// Whether this first byte selects requests.
pub fn is_of_client(selector: u8) -> bool {
    selector & 0b100 != 0
}

/// Serves a client that sends the input in pieces. Returns the requests that were accepted.
pub fn requests(input: &[u8], piece_bytes: usize) -> Vec<Accepted> {
    let accepted = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&accepted);
    let (_, output) = serve_client(input, piece_bytes, move |request| {
        let accepted = Rc::clone(&noted);
        async move {
            let (endpoint, received) = Script::new(ANSWER, usize::MAX);
            let (method, response) = (request.method().clone(), forward(request, endpoint).await);
            let is_complete = response.status() == StatusCode::OK;
            let received = std::mem::take(&mut *lock(&received));
            let request = strict::parse(&received, None);
            let Message { start: Start::Request(target), body, rest, .. } = request else {
                assert!(!is_complete && request == Message::INCOMPLETE, "the endpoint receives an invalid request");
                accepted.borrow_mut().push(Accepted { method, target: String::new(), body: None });
                return response;
            };
            assert!(is_complete && rest.is_empty(), "the endpoint receives more than one request");
            accepted.borrow_mut().push(Accepted { method, target, body: Some(body) });
            response
        }
    });
    let mut rest = &output[..];
    for Accepted { method, .. } in &*accepted.borrow() {
        let mut response = strict::parse(rest, Some(method));
        if response.start == Start::Response("100".to_owned()) {
            response = strict::parse(response.rest, Some(method));
        }
        assert!(matches!(response.start, Start::Response(_)), "the client receives an invalid response");
        rest = &rest[rest.len() - response.rest.len()..];
    }
    // A request that cannot be read has a response, too.
    let last = strict::parse(rest, Some(&Method::GET));
    assert!(rest.is_empty() || last.rest.is_empty() && last.start != Start::Incomplete, "the client receives more");
    accepted.take()
}

/// Forwards a response. What the client receives must not depend on the pieces.
fn check_response(request: &[u8], response: &[u8], piece_bytes: usize) {
    let method = if request.starts_with(b"HEAD") { Method::HEAD } else { Method::GET };
    let seen = [usize::MAX, piece_bytes].map(|piece_bytes| {
        let response = response.to_vec();
        let (result, output) = serve_client(request, usize::MAX, move |request| {
            let endpoint = Script::new(&response, piece_bytes).0;
            forward(request, endpoint)
        });
        let message = strict::parse(&output, Some(&method));
        assert!(message.rest.is_empty(), "the client receives more than one response");
        let is_cut = !message.is_complete || message.ends_with_connection;
        assert!(if result.is_ok() { message.is_complete } else { is_cut }, "{:?}", String::from_utf8_lossy(&output));
        (message.start, message.body)
    });
    assert_eq!(seen[0], seen[1], "the pieces matter");
}

fn serve_client<F, R>(input: &[u8], piece_bytes: usize, service: F) -> (Result<(), ServerError>, Vec<u8>)
where
    F: Fn(Request<RequestStream>) -> R,
    R: Future<Output = Response<Body>>,
{
    thread_local! {
        static RUNTIME: Runtime =
            Builder::new_current_thread().enable_time().build().expect("a runtime without I/O can be built");
    }
    let (client, received) = Script::new(input, piece_bytes);
    let serving = serve(client, BytesMut::new(), LIMITS, std::future::pending(), service);
    let result = RUNTIME.with(|runtime| runtime.block_on(serving));
    let output = std::mem::take(&mut *lock(&received));
    (result, output)
}

/// Forwards a request like the handler.
async fn forward(request: Request<RequestStream>, endpoint: Script) -> Response<Body> {
    let mut request = request.map(|body| body.map_err(BodyError::Client).boxed_unsync());
    headers::remove_hop_by_hop(request.headers_mut());
    *request.version_mut() = Version::HTTP_11;
    match Stream::new(endpoint).send(request, Discard).await {
        Ok(Answer::Response(mut response)) => {
            headers::remove_hop_by_hop(response.headers_mut());
            response.map(|body| body.map_err(BodyError::Http1).boxed_unsync())
        }
        Ok(Answer::Switched(..)) | Err(_) => {
            let mut response = Response::new(body::empty());
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}

fn lock(received: &Received) -> std::sync::MutexGuard<'_, Vec<u8>> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Script {
    fn new(input: &[u8], piece_bytes: usize) -> (Script, Received) {
        let received = Received::default();
        (Script { input: input.to_vec(), sent: 0, piece_bytes, received: Arc::clone(&received) }, received)
    }
}

impl AsyncRead for Script {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let length = (self.input.len() - self.sent).min(self.piece_bytes).min(buffer.remaining());
        buffer.put_slice(&self.input[self.sent..self.sent + length]);
        self.sent += length;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        lock(&self.received).extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Recycle for Discard {
    fn put(&self, _: Stream) {}
}
