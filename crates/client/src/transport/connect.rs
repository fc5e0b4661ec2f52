//! Connections: TCP, an optional proxy, and TLS with HTTP/2 or HTTP/1.1.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use super::BoxError;

/// Timeout of TCP connect, proxy and TLS handshake together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Idle time before TCP keep-alive probes, which detect a vanished peer.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Maximum size of the proxy's response header.
const PROXY_RESPONSE_MAX: usize = 8 << 10;

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the address of the server has no host")]
    NoHost,
    /// The host is not a valid name in a certificate.
    #[error("{0:?} is not a valid server name")]
    ServerName(String),
    #[error("no connection was established within {CONNECT_TIMEOUT:?}")]
    Timeout,
    /// The proxy rejected the tunnel.
    #[error("the proxy {proxy} rejected the tunnel with {status_line:?}")]
    Proxy {
        proxy: String,
        /// The first line of the proxy's response.
        status_line: String,
    },
}

/// Connects to one server.
#[derive(Clone)]
pub struct Connector {
    tcp: HttpConnector,
    tls: Arc<rustls::ClientConfig>,
    server_name: Option<String>,
    proxy: Option<Uri>,
}

/// A connection to the server, possibly through a proxy.
pub enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connector {
    /// Returns a connector, which uses TLS for `https` URLs. `server_name` overrides the expected name in the
    /// certificate.
    pub fn new(tls: rustls::ClientConfig, server_name: Option<String>, proxy: Option<Uri>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEP_ALIVE));
        Self { tcp, tls: Arc::new(tls), server_name, proxy }
    }

    async fn connect(mut self, server: Uri) -> Result<TokioIo<Wire>, BoxError> {
        let host = server.host().ok_or(ConnectError::NoHost)?.trim_matches(['[', ']']).to_owned();
        let stream = match &self.proxy {
            None => self.tcp.call(server.clone()).await?.into_inner(),
            Some(proxy) => {
                let mut stream = self.tcp.call(proxy.clone()).await?.into_inner();
                open_tunnel(&mut stream, proxy, &server).await?;
                stream
            }
        };
        if server.scheme_str() == Some("http") {
            return Ok(TokioIo::new(Wire::Plain(stream)));
        }
        let name = self.server_name.unwrap_or(host);
        let name = ServerName::try_from(name.clone()).map_err(|_| ConnectError::ServerName(name))?;
        let stream = TlsConnector::from(self.tls).connect(name, stream).await?;
        Ok(TokioIo::new(Wire::Tls(Box::new(stream))))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Wire>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connecting = self.clone().connect(server);
        Box::pin(async move {
            match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
                Ok(connected) => connected,
                Err(_) => Err(ConnectError::Timeout.into()),
            }
        })
    }
}

/// Requests a tunnel from a proxy. The server sends only after the client, so the response contains none of its bytes.
async fn open_tunnel(stream: &mut TcpStream, proxy: &Uri, server: &Uri) -> Result<(), BoxError> {
    let host = server.host().ok_or(ConnectError::NoHost)?;
    let default_port = if server.scheme_str() == Some("http") { 80 } else { 443 };
    let port = server.port_u16().unwrap_or(default_port);
    let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
    let authority = proxy.authority().map_or("", http::uri::Authority::as_str);
    if let Some((user, _)) = authority.rsplit_once('@') {
        let user = percent_encoding::percent_decode_str(user).decode_utf8_lossy();
        request.push_str(&format!("Proxy-Authorization: Basic {}\r\n", BASE64.encode(user.as_bytes())));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") && response.len() < PROXY_RESPONSE_MAX {
        match stream.read_u8().await {
            Ok(byte) => response.push(byte),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error.into()),
        }
    }
    let response = String::from_utf8_lossy(&response);
    let first = response.lines().next().unwrap_or_default();
    let code = first.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
    if code.is_some_and(|code| code.starts_with('2')) && response.ends_with("\r\n\r\n") {
        return Ok(());
    }
    // The error omits the userinfo, which may contain a password.
    let proxy = authority.rsplit('@').next().unwrap_or_default().to_owned();
    Err(ConnectError::Proxy { proxy, status_line: first.to_owned() }.into())
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        match self {
            Self::Plain(stream) => stream.connected(),
            Self::Tls(stream) => {
                let (tcp, tls) = stream.get_ref();
                let connected = tcp.connected();
                if tls.alpn_protocol() == Some(b"h2") { connected.negotiated_h2() } else { connected }
            }
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, task: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(task, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(task, into),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(task, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(task, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(task),
            Self::Tls(stream) => Pin::new(stream).poll_flush(task),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(task),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(task),
        }
    }
}
