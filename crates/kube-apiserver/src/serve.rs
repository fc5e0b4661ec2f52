//! The HTTPS listener: TLS handshake, then HTTP/1.1 or HTTP/2, with graceful shutdown.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use apimachinery::time::Time;
use bytes::Bytes;
use client::transport::BoxError;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::authentication::Peer;
use crate::request;
use crate::request_trace::TracedBody;
use crate::state::State;
use crate::tls::Tls;
use crate::write_timeout::Patient;
use client::clock::now;

/// Maximum number of connections: far more than a cluster has, and fewer than file descriptors.
const CONNECTIONS_MAX: usize = 1 << 19;
/// Timeout of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A connection is closed if its client reads nothing for this time.
const STALLED: Duration = Duration::from_secs(60);
/// Maximum size of request headers in bytes; upstream's limit.
const HEADER_BYTES_MAX: u32 = 1 << 20;
/// Timeout for the headers of a request.
const HEADER_TIME: Duration = Duration::from_secs(32);
/// Interval at which the clock is read while waiting for a client certificate to expire.
const CLOCK_READ_EVERY: Duration = Duration::from_secs(600);
/// Maximum number of concurrent HTTP/2 streams per connection; upstream's limit.
const STREAMS_MAX: u32 = 250;

/// Accepts connections until shutdown, and then waits for the open ones to finish.
pub(crate) async fn accept(listener: TcpListener, tls: Arc<Tls>, state: Arc<State>) {
    let ending = state.ending();
    component_base::accept(listener, CONNECTIONS_MAX, ending, |stream, from, slot| {
        let serving = connection(stream, from, Arc::clone(&tls), Arc::clone(&state));
        async move {
            serving.await;
            drop(slot);
        }
    })
    .await;
}

/// Serves one connection.
async fn connection(stream: TcpStream, from: SocketAddr, tls: Arc<Tls>, state: Arc<State>) {
    let _ = stream.set_nodelay(true);
    let offer = tls.offer();
    let acceptor = TlsAcceptor::from(offer.config.clone());
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(Patient::new(stream, STALLED))).await else {
        state.metrics.handshake_errors.with(&[]).add(1);
        return;
    };
    let (_, session) = stream.get_ref();
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let peer = Peer { address: Some(from), ..offer.peer(session.peer_certificates().unwrap_or_default()) };
    let (server_ends, expires) = (state.ending(), peer.expires);
    let ending = async move {
        tokio::select! {
            () = server_ends => {}
            () = reached(expires) => {}
        }
    };
    let headers_in = HEADER_TIME.min(state.filters.request_timeout);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (state, peer) = (state.clone(), peer.clone());
        async move {
            let mounted = state.mount.get().filter(|mount| mount.is_served(request.uri().path()));
            let response = match mounted {
                Some(mount) => mount.serve(request).await.map(ListenerBody::Mounted),
                None => request::serve(state, peer, request).await.map(ListenerBody::Api),
            };
            Ok::<_, Infallible>(response)
        }
    });
    // ALPN has selected the protocol, so there is no need to detect it from the first bytes.
    let served = if is_http2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEADER_BYTES_MAX)
            .keep_alive_interval(Duration::from_secs(30))
            .serve_connection(TokioIo::new(stream), service);
        until(connection, ending, http2::Connection::graceful_shutdown).await
    } else {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(headers_in)
            .max_buf_size(HEADER_BYTES_MAX as usize)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        until(connection, ending, http1::UpgradeableConnection::graceful_shutdown).await
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection closed with an error");
    }
}

/// Waits until a client certificate has expired. The connection then accepts no more requests, so that the client
/// reconnects with its current certificate.
async fn reached(expires: Option<Time>) {
    let Some(expires) = expires else { return std::future::pending().await };
    // The system clock may be set meanwhile, so it is read again at intervals.
    while now().to_seconds() <= expires {
        let left = expires.unix_seconds().saturating_sub(now().unix_seconds()).unsigned_abs();
        tokio::time::sleep(Duration::from_secs(left.saturating_add(1)).min(CLOCK_READ_EVERY)).await;
    }
}

/// Serves a connection until it closes. On shutdown the requests in flight are finished first.
async fn until<C: Future>(connection: C, ending: impl Future<Output = ()>, finish: fn(Pin<&mut C>)) -> C::Output {
    let mut connection = pin!(connection);
    tokio::select! {
        served = connection.as_mut() => served,
        () = ending => {
            finish(connection.as_mut());
            connection.await
        }
    }
}

/// The body of a response of the listener.
#[expect(clippy::large_enum_variant, reason = "API responses are the most frequent ones and should not be boxed")]
enum ListenerBody {
    Api(TracedBody),
    Mounted(client::Body),
}

impl http_body::Body for ListenerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Api(body) => Pin::new(body).poll_frame(task).map_err(BoxError::from),
            Self::Mounted(body) => Pin::new(body).poll_frame(task),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Api(body) => body.is_end_stream(),
            Self::Mounted(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Api(body) => body.size_hint(),
            Self::Mounted(body) => body.size_hint(),
        }
    }
}
