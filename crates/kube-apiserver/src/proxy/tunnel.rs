//! SPDY tunnel inside WebSocket (port-forward), for kubelets that only support SPDY: the messages contain the bytes of
//! the connection.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    UPGRADE,
};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tracing::Instrument;

use super::{BUFFER_BYTES, ProxyError, Target, headers, nothing, upgrade_error};
use crate::response::{Body, HttpResponse};

/// Prefix of the subprotocols that are tunnelled.
pub const TUNNEL_PREFIX: &str = "SPDY/3.1+";
/// Maximum size of a client's message.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
pub(super) const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// A client's WebSocket connection.
pub(super) type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// Tunnels the contents of a client's WebSocket to a backend over SPDY.
pub async fn tunnel(target: &Target, sent: &HeaderMap, client: OnUpgrade) -> Result<HttpResponse, ProxyError> {
    let inner: Vec<&str> =
        headers::websocket_protocols(sent).into_iter().filter_map(|name| name.strip_prefix(TUNNEL_PREFIX)).collect();
    let response = request_upgrade(target, sent, &inner).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return upgrade_error(response);
    }
    let chosen = response.headers().get(&STREAM_PROTOCOL).and_then(|value| value.to_str().ok());
    let accepted = accept(sent, chosen.map(|name| format!("{TUNNEL_PREFIX}{name}")).as_deref())?;
    tokio::spawn(carry(client, hyper::upgrade::on(response)).in_current_span());
    Ok(accepted)
}

/// Requests a SPDY upgrade from a backend on behalf of a client that requested WebSocket.
pub(super) async fn request_upgrade(
    target: &Target,
    sent: &HeaderMap,
    protocols: &[&str],
) -> Result<Response<Incoming>, ProxyError> {
    let mut upgrade_headers = headers::forwarded(sent, None);
    let websocket: Vec<HeaderName> =
        upgrade_headers.keys().filter(|name| name.as_str().starts_with("sec-websocket-")).cloned().collect();
    for name in websocket {
        upgrade_headers.remove(name);
    }
    upgrade_headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    upgrade_headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    upgrade_headers.remove(&STREAM_PROTOCOL);
    for protocol in protocols {
        upgrade_headers.append(&STREAM_PROTOCOL, HeaderValue::from_str(protocol).map_err(http::Error::from)?);
    }
    let response = target.send(target.request(Method::POST, upgrade_headers, nothing())?).await?;
    let upgrade = response.headers().get(UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if response.status() == StatusCode::SWITCHING_PROTOCOLS && !upgrade.eq_ignore_ascii_case("SPDY/3.1") {
        return Err(ProxyError::Upgrade("missing upgrade headers in response"));
    }
    Ok(response)
}

/// Returns the 101 response of a WebSocket upgrade with the selected subprotocol.
pub(super) fn accept(sent: &HeaderMap, protocol: Option<&str>) -> Result<HttpResponse, ProxyError> {
    let key = sent.get(SEC_WEBSOCKET_KEY).ok_or(ProxyError::Upgrade("the WebSocket has no key"))?;
    let mut response = Response::new(Body::Full(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let proof = derive_accept_key(key.as_bytes());
    headers.insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::from_str(&proof).map_err(http::Error::from)?);
    if let Some(protocol) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_str(protocol).map_err(http::Error::from)?);
    }
    Ok(response)
}

/// Returns the client's WebSocket once the 101 response was sent.
pub(super) async fn open(client: OnUpgrade) -> Option<Socket> {
    let client = client.await.ok()?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
        .max_write_buffer_size(2 * MESSAGE_BYTES_MAX)
        .write_buffer_size(0);
    Some(WebSocketStream::from_raw_socket(TokioIo::new(client), Role::Server, Some(config)).await)
}

/// Copies between messages and bytes in both directions until one side closes.
async fn carry(client: OnUpgrade, backend: OnUpgrade) {
    let Some(socket) = open(client).await else { return };
    let Ok(backend) = backend.await else { return };
    let (mut to_client, mut from_client) = socket.split();
    let (mut from_backend, mut to_backend) = tokio::io::split(TokioIo::new(backend));
    let outward = async {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Ok(count @ 1..) = from_backend.read(&mut buffer).await {
            if to_client.send(Message::Binary(Bytes::copy_from_slice(&buffer[..count]))).await.is_err() {
                return;
            }
        }
        let _ = to_client.close().await;
    };
    let inward = async {
        while let Some(Ok(message)) = from_client.next().await {
            match message {
                Message::Binary(bytes) if to_backend.write_all(&bytes).await.is_ok() => {}
                Message::Ping(_) | Message::Pong(_) => {}
                _ => break,
            }
        }
        let _ = to_backend.shutdown().await;
    };
    tokio::select! {
        () = outward => {}
        () = inward => {}
    }
}
