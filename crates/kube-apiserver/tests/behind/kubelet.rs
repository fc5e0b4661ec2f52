//! Fake kubelet: its containers and ports echo their input.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use streaming::spdy::{Session, Side, Stream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use crate::server::{Backend, ReceivedRequest};

/// The Status at the exit of every command.
pub(crate) const SUCCESS: &str = r#"{"metadata":{},"status":"Success"}"#;

pub(crate) async fn start() -> Backend {
    Backend::start(IpAddr::V4(Ipv4Addr::LOCALHOST), &["127.0.0.1"], Arc::new(switch), plain).await
}

fn plain(seen: &ReceivedRequest) -> Response<Full<Bytes>> {
    let (code, body) = match seen.path.as_str() {
        path if path.contains("/absent/") => (404, "the container is not there".to_owned()),
        path if path.starts_with("/containerLogs/") => (200, format!("log by {path}\n")),
        path => (200, format!("{} {path}", seen.method)),
    };
    Response::builder().status(code).body(Full::new(body.into())).unwrap()
}

fn switch(mut request: Request<Incoming>) -> Option<Response<Full<Bytes>>> {
    let upgrade: OnUpgrade = request.extensions_mut().remove()?;
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let protocol = header("upgrade")?;
    let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS).header("connection", "Upgrade");
    if protocol.eq_ignore_ascii_case("websocket") {
        let accept = derive_accept_key(header("sec-websocket-key")?.as_bytes());
        let offered = header("sec-websocket-protocol")?;
        let chosen = offered.split(',').next()?.trim().to_owned();
        tokio::spawn(by_websocket(upgrade));
        let response = response.header("upgrade", "websocket").header("sec-websocket-accept", accept);
        return response.header("sec-websocket-protocol", chosen).body(Full::default()).ok();
    }
    let chosen = header("x-stream-protocol-version")?;
    let path = request.uri().to_string();
    tokio::spawn(async move {
        let session = Session::new(TokioIo::new(upgrade.await.unwrap()), Side::Server);
        if path.starts_with("/portForward/") {
            ports(session).await;
        } else {
            process(session, path.contains("error=1")).await;
        }
    });
    response.header("upgrade", "SPDY/3.1").header("x-stream-protocol-version", chosen).body(Full::default()).ok()
}

/// Echoes stdin to stdout over WebSocket until stdin is closed.
async fn by_websocket(upgrade: OnUpgrade) {
    let upgraded: Upgraded = upgrade.await.unwrap();
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
    while let Some(Ok(message)) = socket.next().await {
        if !matches!(message, Message::Binary(_) | Message::Text(_)) {
            continue;
        }
        let bytes = message.into_data();
        let response = match bytes.as_ref() {
            [0, payload @ ..] => [&[1], payload].concat(),
            [255, 0] => [&[3], SUCCESS.as_bytes()].concat(),
            _ => continue,
        };
        let last = response[0] == 3;
        socket.send(Message::Binary(response.into())).await.unwrap();
        if last {
            let end = CloseFrame { code: CloseCode::Normal, reason: "".into() };
            let _ = socket.close(Some(end)).await;
        }
    }
}

/// Echoes stdin to stdout over SPDY.
async fn process(mut session: Session, complains: bool) {
    let (mut stdin, mut stdout, mut error): (Option<Stream>, Option<Stream>, Option<Stream>) = (None, None, None);
    let mut stderr: Option<Stream> = None;
    while stdin.is_none() || stdout.is_none() || error.is_none() || (complains && stderr.is_none()) {
        let stream = session.accept().await.unwrap();
        match stream.headers["streamtype"].as_str() {
            "stdin" => stdin = Some(stream),
            "stdout" => stdout = Some(stream),
            "error" => error = Some(stream),
            "stderr" => stderr = Some(stream),
            other => panic!("unexpected request {other}"),
        }
    }
    let (mut stdin, stdout, error) = (stdin.unwrap(), stdout.unwrap(), error.unwrap());
    while let Some(piece) = stdin.data.recv().await {
        stdout.sender.send(&piece).await.unwrap();
    }
    error.sender.send(SUCCESS.as_bytes()).await.unwrap();
    for stream in [Some(&stdout), stderr.as_ref(), Some(&error)].into_iter().flatten() {
        stream.sender.finish().await.unwrap();
    }
    while session.accept().await.is_some() {}
}

/// Echoes the data of every port.
async fn ports(mut session: Session) {
    let mut tasks = tokio::task::JoinSet::new();
    while let Some(mut stream) = session.accept().await {
        tasks.spawn(async move {
            if stream.headers["streamtype"] == "data" {
                while let Some(piece) = stream.data.recv().await {
                    stream.sender.send(&piece).await.unwrap();
                }
            }
            let _ = stream.sender.finish().await;
        });
    }
}
