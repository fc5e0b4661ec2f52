//! HTTP on one connection of a component's server, over HTTP/1.1 or HTTP/2, with limits.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::without_head_body;

/// Limit for the headers of a request, so that slow clients do not keep connections.
const HEADERS: Duration = Duration::from_secs(10);
/// Interval of HTTP/2 pings. A client that does not answer is disconnected.
const PING: Duration = Duration::from_secs(30);
/// Maximum size of the headers of a request.
const HEADER_BYTES_MAX: u32 = 1 << 20;
/// Maximum number of concurrent HTTP/2 requests of a connection.
const STREAMS_MAX: u32 = 100;

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Returns a body of these bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns a body without bytes.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

type Handler = Box<dyn Fn(Request<Incoming>) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>> + Send>;

/// Serves a connection until it closes. `handle` may upgrade requests. Responses to HEAD have no body.
pub async fn serve_connection<F>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    handle: impl Fn(Request<Incoming>) -> F + Send + 'static,
) where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    serve(Box::new(stream), Box::new(move |request| Box::pin(handle(request)))).await;
}

/// Not generic: every instance of HTTP/1.1 and HTTP/2 takes a tenth of a megabyte in the binary.
async fn serve(stream: Box<dyn Stream>, handle: Handler) {
    let service = service_fn(move |request: Request<Incoming>| {
        let method = request.method().clone();
        let response = handle(request);
        async move { Ok::<_, Infallible>(without_head_body(&method, response.await, empty)) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS).max_buf_size(HEADER_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX);
    // Most failures are clients that disconnect.
    if let Err(error) = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await {
        tracing::debug!(error, "a connection failed");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Sends bytes to a server that answers `hello`, and returns all that it sends until it closes the connection.
    async fn exchange(request: &str) -> String {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let serving = tokio::spawn(serve_connection(server, |_| async { Response::new(full("hello")) }));
        client.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        client.read_to_string(&mut response).await.unwrap();
        serving.await.unwrap();
        response
    }

    #[tokio::test(start_paused = true)]
    async fn request_without_the_end_of_its_headers_is_closed() {
        assert_eq!(exchange("GET / HTTP/1.1\r\nhost: a\r\n").await, "");
    }

    #[tokio::test(start_paused = true)]
    async fn response_to_head_has_the_length_and_no_body() {
        let request = |method: &str| format!("{method} / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let head = exchange(&request("HEAD")).await;
        assert!(head.contains("content-length: 5") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(exchange(&request("GET")).await.ends_with("\r\n\r\nhello"));
    }
}
