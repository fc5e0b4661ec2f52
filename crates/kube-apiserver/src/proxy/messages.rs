//! Response bodies as WebSocket messages, for clients such as browsers that cannot read a streamed HTTP response.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::header::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tracing::Instrument;

use super::tunnel::{accept, open};
use super::{ProxyError, headers};
use crate::response::HttpResponse;

/// Binary messages; also the default for clients that offer no subprotocol.
const BINARY: &str = "binary.k8s.io";
/// Base64-encoded text messages.
const BASE64_TEXT: &str = "base64.binary.k8s.io";

/// Whether the server supports an offered subprotocol; an empty offer is supported.
pub fn has_messages(offered: &[&str]) -> bool {
    offered.is_empty() || choose(offered).is_some()
}

fn choose<'p>(offered: &[&'p str]) -> Option<&'p str> {
    offered.iter().find(|name| [BINARY, BASE64_TEXT].contains(name)).copied()
}

/// Accepts a WebSocket upgrade and sends the body as messages.
pub fn messages(sent: &HeaderMap, client: OnUpgrade, body: Incoming) -> Result<HttpResponse, ProxyError> {
    let chosen = choose(&headers::websocket_protocols(sent));
    let as_text = chosen == Some(BASE64_TEXT);
    let accepted = accept(sent, chosen)?;
    tokio::spawn(carry(client, body, as_text).in_current_span());
    Ok(accepted)
}

fn message(bytes: Bytes, as_text: bool) -> Message {
    if as_text { Message::Text(BASE64.encode(bytes).into()) } else { Message::Binary(bytes) }
}

/// Sends the body until it is complete or the client closes. Messages from the client are ignored.
async fn carry(client: OnUpgrade, mut body: Incoming, as_text: bool) {
    let Some(socket) = open(client).await else { return };
    let (mut to, mut from) = socket.split();
    let outward = async {
        // An empty first message shows the client that the stream is open, even if no data follows for a long time.
        let mut next = Some(Bytes::new());
        while let Some(bytes) = next {
            if to.send(message(bytes, as_text)).await.is_err() {
                return;
            }
            next = loop {
                match body.frame().await {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) if !data.is_empty() => break Some(data),
                        _ => {}
                    },
                    // A body that breaks off is treated as complete: a followed log never completes otherwise.
                    Some(Err(_)) | None => break None,
                }
            };
        }
        let _ = to.send(Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))).await;
    };
    let inward = async { while let Some(Ok(_)) = from.next().await {} };
    tokio::select! {
        () = outward => {}
        () = inward => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offered_subprotocol_is_selected_or_the_upgrade_is_rejected() {
        let check = |offered: &[&str], expect: (bool, Option<&str>)| {
            assert_eq!((has_messages(offered), choose(offered)), expect, "{offered:?}");
        };
        check(&[], (true, None));
        check(&["other", BASE64_TEXT, BINARY], (true, Some(BASE64_TEXT)));
        check(&["channel.k8s.io"], (false, None));
        assert_eq!(message(Bytes::from_static(b"hi"), true), Message::Text("aGk=".into()));
    }
}
