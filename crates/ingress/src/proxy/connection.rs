//! One client connection: PROXY protocol, TLS handshake, then HTTP/1.1 or HTTP/2 until it is drained.

use std::convert::Infallible;
use std::io::Cursor;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use component_base::{Idle, Slot};
use http::HeaderValue;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::body::ClientBody;
use super::connect::Wire;
use super::handler;
use super::http1::{self, HeadLimits, ServerLimits, Socket};
use super::proxy_protocol;
use super::state::{Port, Served, Shared};

const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Time for a request of a client that cannot know that its listener is drained.
const LAST_REQUEST: Duration = Duration::from_secs(1);
/// Bytes of a response that one HTTP/2 stream keeps for a client that does not read. hyper's default is 400 KiB, which
/// all streams of a connection may take.
const SEND_BUFFER_MAX: usize = 64 << 10;
/// Interval of HTTP/2 pings to clients.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Attributes of a connection that all its requests share.
pub(super) struct ClientConnection {
    pub shared: Arc<Shared>,
    pub port: Arc<Port>,
    pub client: SocketAddr,
    /// The address of the client for headers.
    pub client_text: HeaderValue,
    /// The port that clients connect to, as a number and for headers.
    pub port_number: u16,
    pub port_text: HeaderValue,
    pub is_tls: bool,
    pub sni: Option<String>,
    pub activity: Activity,
    /// Upgraded connections outlive the HTTP connection and keep counting.
    #[expect(dead_code, reason = "it counts the connection until it is dropped")]
    pub slot: Slot,
}

/// Requests of a connection, to detect that it is idle.
#[derive(Debug, Default)]
pub(super) struct Activity {
    active: AtomicUsize,
    started: AtomicUsize,
    /// Notified of requests.
    begun: Notify,
}

/// A request in flight.
pub(super) struct ActiveRequest {
    connection: Arc<ClientConnection>,
    /// False if too many requests of all connections are in flight.
    pub is_admitted: bool,
}

impl ClientConnection {
    /// Marks the connection as in use until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> ActiveRequest {
        self.activity.active.fetch_add(1, Ordering::Relaxed);
        self.activity.started.fetch_add(1, Ordering::Relaxed);
        self.activity.begun.notify_one();
        ActiveRequest { connection: Arc::clone(self), is_admitted: self.shared.requests.try_begin() }
    }

    /// Waits until the listener is drained. A client that has just connected may still send its first request, because it
    /// could not know and would fail. HTTP/1 also waits for requests of other clients, HTTP/2 announces the end to them.
    async fn drained(&self, drain: &CancellationToken) {
        drain.cancelled().await;
        if self.activity.started.load(Ordering::Relaxed) == 0 {
            let _ = tokio::time::timeout(LAST_REQUEST, self.activity.begun.notified()).await;
        }
    }

    /// Waits until there was no request for at least `limit`.
    async fn idle(&self, limit: Duration) {
        let Activity { active, started, .. } = &self.activity;
        loop {
            let before = started.load(Ordering::Relaxed);
            tokio::time::sleep(limit).await;
            if active.load(Ordering::Relaxed) == 0 && started.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.connection.activity.active.fetch_sub(1, Ordering::Relaxed);
        if self.is_admitted {
            self.connection.shared.requests.end();
        }
    }
}

/// Serves a connection until it closes.
pub(super) async fn serve(mut stream: TcpStream, from: SocketAddr, slot: Slot, shared: Arc<Shared>, port: Arc<Port>) {
    let metrics = Arc::clone(&shared);
    let _open = metrics.metrics.count_connection();
    let _ = stream.set_nodelay(true);
    let (served, drain) = port.admit();
    let port_number = match port.address.port {
        0 => stream.local_addr().map_or(0, |address| address.port()),
        number => number,
    };
    let port_text = HeaderValue::from(port_number);
    let mut client = from;
    if served.listener.proxy_protocol {
        let header = proxy_protocol::read_header(&mut stream);
        match tokio::time::timeout(shared.settings.header_timeout, header).await {
            Ok(Ok(address)) => client = address.unwrap_or(from),
            Ok(Err(error)) => return tracing::debug!(%from, %error, "a connection was rejected"),
            Err(_) => return,
        }
    }
    let is_tls = served.listener.tls.is_some();
    let activity = Activity::default();
    let client_text = HeaderValue::try_from(client.ip().to_canonical().to_string());
    let client_text = client_text.expect("an IP address is a header value");
    let connection = ClientConnection {
        shared,
        port,
        client,
        client_text,
        port_number,
        port_text,
        is_tls,
        sni: None,
        activity,
        slot,
    };
    if is_tls {
        serve_tls(stream, &served, connection, drain).await;
    } else {
        serve_plain(stream, connection, drain).await;
    }
}

async fn serve_tls(stream: TcpStream, served: &Served, mut connection: ClientConnection, drain: CancellationToken) {
    let settings = &connection.shared.settings;
    // A listener whose TLS cannot be configured accepts no client.
    let Some(tls) = &served.tls else { return };
    let accepting = TlsAcceptor::from(Arc::clone(&tls.config)).accept(Idle::new(stream, settings.idle_timeout));
    let Ok(Ok(stream)) = tokio::time::timeout(settings.handshake_timeout, accepting).await else {
        return connection.shared.metrics.count_handshake_error();
    };
    let (_, session) = stream.get_ref();
    connection.sni = session.server_name().and_then(super::hosts::normalize);
    if session.alpn_protocol() == Some(b"h2") {
        // On the heap: a connection with HTTP/1 needs no space for it.
        Box::pin(serve_http2(stream, connection, drain)).await;
    } else {
        serve_http1(stream, BytesMut::new(), connection, drain).await;
    }
}

/// Serves a connection without TLS. A client with prior knowledge may speak HTTP/2.
async fn serve_plain(mut stream: TcpStream, connection: ClientConnection, drain: CancellationToken) {
    let settings = &connection.shared.settings;
    let sniffing = tokio::time::timeout(settings.header_timeout, sniff(&mut stream));
    let sniffed = tokio::select! {
        sniffed = sniffing => sniffed,
        () = connection.drained(&drain) => return,
    };
    let Ok(Ok((wire, start))) = sniffed else { return };
    let stream = Idle::new(stream, settings.idle_timeout);
    match wire {
        Wire::Http1 => serve_http1(stream, start, connection, drain).await,
        Wire::Http2 => {
            let (read, write) = tokio::io::split(stream);
            let stream = tokio::io::join(Cursor::new(start).chain(read), write);
            Box::pin(serve_http2(stream, connection, drain)).await;
        }
    }
}

/// Reads the first bytes of a connection until they tell the HTTP version.
async fn sniff(stream: &mut TcpStream) -> std::io::Result<(Wire, BytesMut)> {
    let mut start = BytesMut::with_capacity(HTTP2_PREFACE.len());
    while start.len() < HTTP2_PREFACE.len() && HTTP2_PREFACE.starts_with(&start) {
        let left = HTTP2_PREFACE.len() - start.len();
        if (&mut *stream).take(left as u64).read_buf(&mut start).await? == 0 {
            break;
        }
    }
    Ok((if start == HTTP2_PREFACE[..] { Wire::Http2 } else { Wire::Http1 }, start))
}

async fn serve_http1(
    stream: impl Socket + 'static,
    start: BytesMut,
    connection: ClientConnection,
    drain: CancellationToken,
) {
    let connection = Arc::new(connection);
    let settings = &connection.shared.settings;
    let limits = ServerLimits {
        head: HeadLimits { headers_max: settings.headers_max, bytes_max: settings.header_bytes_max as usize },
        head_timeout: settings.header_timeout,
        idle_timeout: settings.idle_timeout,
        last_request_timeout: LAST_REQUEST,
    };
    let ending = async {
        tokio::select! {
            () = drain.cancelled() => {}
            () = connection.idle(settings.keep_alive_timeout) => {}
        }
    };
    let service = |request: http::Request<http1::RequestStream>| {
        handler::serve(Arc::clone(&connection), request.map(ClientBody::Http1))
    };
    if let Err(error) = http1::serve(stream, start, limits, ending, service).await {
        tracing::debug!(client = %connection.client, %error, "a connection closed with an error");
    }
}

async fn serve_http2<S>(stream: S, connection: ClientConnection, drain: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let connection = Arc::new(connection);
    let settings = &connection.shared.settings;
    let context = Arc::clone(&connection);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let context = Arc::clone(&context);
        async move { Ok::<_, Infallible>(handler::serve(context, request.map(ClientBody::Http2)).await) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(settings.streams_max)
        .max_send_buf_size(SEND_BUFFER_MAX)
        .max_pending_accept_reset_streams(settings.reset_streams_max)
        .max_local_error_reset_streams(settings.reset_streams_max)
        .max_header_list_size(settings.header_bytes_max)
        .keep_alive_interval(PING_INTERVAL);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ending = async {
        tokio::select! {
            () = connection.drained(&drain) => {}
            () = connection.idle(settings.keep_alive_timeout) => {}
        }
    };
    // When the connection is drained, the requests in flight are finished first.
    let served = tokio::select! {
        served = serving.as_mut() => served,
        () = ending => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(client = %connection.client, %error, "a connection closed with an error");
    }
}
