//! WebSocket to SPDY translation (`v5.channel.k8s.io`), for kubelets that cannot close a single stream over WebSocket.
//!
//! ```text
//! client: one channel byte, then data      kubelet: one stream per channel
//!   0 stdin ──> stdin    1 <── stdout   2 <── stderr   3 <── error: a Status   4 ──> resize   255 n: close channel n
//! ```

use api_registry::connect::ProcessOptions;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http::StatusCode;
use http::header::HeaderMap;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use streaming::spdy::{Headers, Session, Side};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tracing::Instrument;

use super::tunnel::{Socket, accept, open, request_upgrade};
use super::{ProxyError, Target, upgrade_error};
use crate::response::HttpResponse;

/// The subprotocol with which a client can close a single stream.
pub const STREAM_CLOSE: &str = "v5.channel.k8s.io";
/// The newest subprotocol that every kubelet supports over SPDY.
const SPDY_PROTOCOL: &str = "v4.channel.k8s.io";

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// The Status sent to the client if the kubelet sent none.
const SUCCESS: &[u8] = br#"{"metadata":{},"status":"Success"}"#;
/// Maximum size of a Status from a kubelet.
const STATUS_BYTES_MAX: usize = 64 << 10;
/// Queue length of messages to the client; a slow client blocks the kubelet.
const PIECES: usize = 16;

/// Connects the channels of a client's WebSocket to a kubelet over SPDY.
pub async fn translate(
    target: &Target,
    sent: &HeaderMap,
    client: OnUpgrade,
    options: &ProcessOptions,
) -> Result<HttpResponse, ProxyError> {
    let response = request_upgrade(target, sent, &[SPDY_PROTOCOL]).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return upgrade_error(response);
    }
    let accepted = accept(sent, Some(STREAM_CLOSE))?;
    let (backend, options) = (hyper::upgrade::on(response), options.clone());
    let task = async move {
        let Some(socket) = open(client).await else { return };
        let Ok(backend) = backend.await else { return };
        let session = Session::new(TokioIo::new(backend), Side::Client);
        if let Err(error) = carry(socket, session, &options).await {
            tracing::debug!(%error, "a translated stream closed with an error");
        }
    };
    tokio::spawn(task.in_current_span());
    Ok(accepted)
}

/// The streams that the client writes to.
struct Inward {
    stdin: Option<streaming::spdy::Sender>,
    resize: Option<streaming::spdy::Sender>,
}

async fn carry(socket: Socket, session: Session, options: &ProcessOptions) -> Result<(), streaming::spdy::SpdyError> {
    let (to_client, from_client) = socket.split();
    let (out, pieces) = mpsc::channel(PIECES);
    let error = session.open(named("error")).await?;
    let stdin = if options.stdin { Some(session.open(named("stdin")).await?) } else { None };
    let stdout = if options.stdout { Some(session.open(named("stdout")).await?) } else { None };
    // With a TTY there is no separate stderr.
    let stderr = if options.stderr && !options.tty { Some(session.open(named("stderr")).await?) } else { None };
    let resize = if options.tty { Some(session.open(named("resize")).await?) } else { None };
    let inward = Inward {
        stdin: stdin.as_ref().map(|stream| stream.sender.clone()),
        resize: resize.as_ref().map(|stream| stream.sender.clone()),
    };
    let outward = async {
        let (stdout, stderr) = (stdout.map(|stream| stream.data), stderr.map(|stream| stream.data));
        let ((), (), status) =
            tokio::join!(pour(stdout, STDOUT, &out), pour(stderr, STDERR, &out), read_status(error.data));
        let _ = out.send(message(ERROR, &status)).await;
        drop(out);
    };
    tokio::select! {
        // The command has exited when its output streams are closed, even if the client still sends stdin.
        ((), ()) = async { tokio::join!(outward, write(pieces, to_client)) } => {}
        () = read(from_client, inward) => {}
    }
    Ok(())
}

fn named(kind: &str) -> Headers {
    Headers::from([("streamtype".to_owned(), kind.to_owned())])
}

async fn pour(from: Option<mpsc::Receiver<Bytes>>, channel: u8, out: &mpsc::Sender<Message>) {
    let Some(mut from) = from else { return };
    while let Some(piece) = from.recv().await {
        if out.send(message(channel, &piece)).await.is_err() {
            return;
        }
    }
}

/// Reads the kubelet's exit Status of the command.
async fn read_status(mut from: mpsc::Receiver<Bytes>) -> Vec<u8> {
    let mut status = Vec::new();
    while let Some(piece) = from.recv().await {
        if status.len() + piece.len() <= STATUS_BYTES_MAX {
            status.extend_from_slice(&piece);
        }
    }
    if status.is_empty() { SUCCESS.to_vec() } else { status }
}

async fn write(mut pieces: mpsc::Receiver<Message>, mut client: SplitSink<Socket, Message>) {
    while let Some(piece) = pieces.recv().await {
        if client.send(piece).await.is_err() {
            return;
        }
    }
    let _ = client.send(Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))).await;
}

/// Forwards the client's messages until it closes.
async fn read(mut client: SplitStream<Socket>, mut inward: Inward) {
    while let Some(Ok(received)) = client.next().await {
        let bytes = match received {
            // Clients also send text messages; the protocol treats them as bytes.
            message @ (Message::Binary(_) | Message::Text(_)) => message.into_data(),
            Message::Ping(_) | Message::Pong(_) => continue,
            _ => return,
        };
        let Some((channel, rest)) = bytes.split_first() else { continue };
        let sent = match (*channel, rest) {
            (CLOSE, [STDIN]) => match inward.stdin.take() {
                Some(stdin) => stdin.finish().await,
                None => Ok(()),
            },
            (STDIN, rest) if !rest.is_empty() => send(inward.stdin.as_ref(), rest).await,
            (RESIZE, rest) if !rest.is_empty() => send(inward.resize.as_ref(), rest).await,
            _ => Ok(()),
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn send(to: Option<&streaming::spdy::Sender>, bytes: &[u8]) -> Result<(), streaming::spdy::SpdyError> {
    match to {
        Some(to) => to.send(bytes).await,
        None => Ok(()),
    }
}

fn message(channel: u8, data: &[u8]) -> Message {
    let mut whole = Vec::with_capacity(data.len() + 1);
    whole.push(channel);
    whole.extend_from_slice(data);
    Message::Binary(whole.into())
}
