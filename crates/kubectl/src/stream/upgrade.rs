//! Connections that a server switches to WebSocket or SPDY.

use apimachinery::json;
use apimachinery::status::Status;
use bytes::{Bytes, BytesMut};
use client::{Client, UpgradeResponse, UpgradedStream};
use http::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt;
use streaming::spdy::{Session, Side};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::StreamError;

pub(super) type WebSocket = WebSocketStream<UpgradedStream>;

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const SPDY: &str = "SPDY/3.1";
/// Maximum size of a message, far above the size of a server's messages.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Maximum number of bytes that are read from the body of a rejection.
const REJECTION_BYTES_MAX: usize = 64 << 10;

/// Opens a WebSocket with a subprotocol; `None` if the server rejects it for any reason. The caller then tries SPDY and
/// reports its rejection, as kubectl does.
pub(super) async fn websocket(client: &Client, path: &str, protocol: &str) -> Result<Option<WebSocket>, StreamError> {
    let key = generate_key();
    let request = request(Method::GET, path)?
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, &key)
        .header(SEC_WEBSOCKET_PROTOCOL, protocol);
    let request = request.body(Bytes::new()).map_err(client::Error::from)?;
    let UpgradeResponse::Switched { head, connection } = client.switch(request).await? else { return Ok(None) };
    if !is_accepted(head.headers(), &key, protocol) {
        return Ok(None);
    }
    let config =
        WebSocketConfig::default().max_message_size(Some(MESSAGE_BYTES_MAX)).max_frame_size(Some(MESSAGE_BYTES_MAX));
    Ok(Some(WebSocketStream::from_raw_socket(connection, Role::Client, Some(config)).await))
}

/// Opens a SPDY session, and returns the selected protocol.
pub(super) async fn spdy(client: &Client, path: &str, protocols: &[&str]) -> Result<(Session, String), StreamError> {
    let mut request = request(Method::POST, path)?.header(CONNECTION, "Upgrade").header(UPGRADE, SPDY);
    for protocol in protocols {
        request = request.header(STREAM_PROTOCOL, *protocol);
    }
    let request = request.body(Bytes::new()).map_err(client::Error::from)?;
    match client.switch(request).await? {
        UpgradeResponse::Switched { head, connection } if has_token(head.headers(), &UPGRADE, SPDY) => {
            let chosen = text(head.headers(), &STREAM_PROTOCOL).to_owned();
            Ok((Session::new(connection, Side::Client), chosen))
        }
        UpgradeResponse::Switched { .. } => Err(StreamError::Remote("unable to upgrade connection: ".to_owned())),
        UpgradeResponse::NotSwitched(response) => Err(rejection_error(response).await),
    }
}

fn request(method: Method, path: &str) -> Result<http::request::Builder, StreamError> {
    let uri: http::Uri = path.parse().map_err(|error| client::Error::from(http::Error::from(error)))?;
    Ok(Request::builder().method(method).uri(uri))
}

/// Whether a server accepted the WebSocket handshake and selected the subprotocol.
fn is_accepted(headers: &HeaderMap, key: &str, protocol: &str) -> bool {
    has_token(headers, &UPGRADE, "websocket")
        && text(headers, &SEC_WEBSOCKET_ACCEPT) == derive_accept_key(key.as_bytes())
        && text(headers, &SEC_WEBSOCKET_PROTOCOL) == protocol
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    text(headers, name).split(',').any(|one| one.trim().eq_ignore_ascii_case(token))
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).map(HeaderValue::to_str).and_then(Result::ok).unwrap_or_default()
}

/// Reads the reason of a rejection: a Status, or a text.
async fn rejection_error(response: Response<client::Body>) -> StreamError {
    let mut body = response.into_body();
    let mut bytes = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > REJECTION_BYTES_MAX {
            break;
        }
    }
    StreamError::Remote(format!("unable to upgrade connection: {}", rejection_message(&bytes)))
}

/// Returns the message of a Status, or the text itself.
fn rejection_message(body: &[u8]) -> String {
    match json::parse(body).ok().and_then(|value| Status::from_value(&value)) {
        Some(status) => status.message,
        None => String::from_utf8_lossy(body).trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn websocket_is_used_only_with_the_requested_subprotocol_and_the_right_proof() {
        let headers = |protocol: &'static str, proof: &'static str| {
            HeaderMap::from_iter([
                (UPGRADE, HeaderValue::from_static("WebSocket")),
                (SEC_WEBSOCKET_ACCEPT, HeaderValue::from_static(proof)),
                (SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol)),
            ])
        };
        // The example of RFC 6455.
        let (key, proof) = ("dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let check = |headers: HeaderMap, expect: bool| assert_eq!(is_accepted(&headers, key, "v5"), expect);
        check(headers("v5", proof), true);
        check(headers("v4", proof), false);
        check(headers("v5", "other"), false);
        check(HeaderMap::new(), false);
    }

    #[test]
    fn rejection_has_the_message_of_its_status() {
        let status = br#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","code":403}"#;
        assert_eq!((rejection_message(status), rejection_message(b" text\n")), ("no".to_owned(), "text".to_owned()));
    }
}
