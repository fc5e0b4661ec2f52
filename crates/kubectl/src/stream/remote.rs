//! Remote commands: the streams of a process in a container, and its exit status.
//!
//! ```text
//! channel byte   0 stdin ──>   <── 1 stdout   <── 2 stderr   <── 3 error: a Status   4 resize ──>   255 n: end of n ──>
//! ```

use std::time::Duration;

use bytes::Bytes;
use client::Client;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use streaming::spdy::{Headers, Opener, Sender, Session, SpdyError};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};

use super::upgrade;
use super::{StreamError, decode_status, is_enabled};

/// The only subprotocol that is offered over WebSocket: older ones cannot close stdin.
const WEBSOCKET_PROTOCOL: &str = "v5.channel.k8s.io";
/// The protocols over SPDY, best first.
const SPDY_PROTOCOLS: &[&str] =
    &["v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
/// The variable that turns WebSocket off.
const WEBSOCKET_VARIABLE: &str = "KUBECTL_REMOTE_COMMAND_WEBSOCKETS";

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// The interval of pings, and the time without any message after which the connection counts as lost.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(61);
/// Maximum size of the error channel.
const STATUS_BYTES_MAX: usize = 64 << 10;

/// A writer for the output of a command.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// The local ends of a command's streams.
#[derive(Default)]
pub struct Streams {
    /// Closed at the end of the input.
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    pub stdout: Option<Writer>,
    pub stderr: Option<Writer>,
    pub tty: bool,
    /// The sizes of the terminal.
    pub sizes: Option<mpsc::Receiver<Size>>,
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub width: u16,
    pub height: u16,
}

impl Size {
    fn to_json(self) -> String {
        format!("{{\"Width\":{},\"Height\":{}}}\n", self.width, self.height)
    }
}

/// Runs a command, or attaches to one, until it exits. `path` is that of the subresource with its query.
pub async fn run(client: &Client, path: &str, streams: Streams) -> Result<(), StreamError> {
    if is_enabled(std::env::var(WEBSOCKET_VARIABLE).ok().as_deref())
        && let Some(socket) = upgrade::websocket(client, path, WEBSOCKET_PROTOCOL).await?
    {
        return over_websocket(socket, streams).await;
    }
    let (session, protocol) = upgrade::spdy(client, path, SPDY_PROTOCOLS).await?;
    over_spdy(session, &protocol, streams).await
}

/// A connection to the server.
trait Connection: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection for S {}

async fn over_websocket<S: Connection>(socket: WebSocketStream<S>, streams: Streams) -> Result<(), StreamError> {
    let Streams { stdin, stdout, stderr, sizes, .. } = streams;
    let (to, from) = socket.split();
    tokio::select! {
        outcome = receive(from, stdout, stderr) => outcome,
        never = send(to, stdin, sizes) => match never {},
    }
}

/// Sends input, sizes and pings. Failures to send are left to the receiver, which sees the end of the connection.
async fn send<S: Connection>(
    mut to: SplitSink<WebSocketStream<S>, Message>,
    mut stdin: Option<mpsc::Receiver<Bytes>>,
    mut sizes: Option<mpsc::Receiver<Size>>,
) -> std::convert::Infallible {
    let mut pings = interval(PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset();
    loop {
        let next = tokio::select! {
            input = next(&mut stdin) => match input {
                Some(bytes) => message(STDIN, &bytes),
                None => {
                    stdin = None;
                    message(CLOSE, &[STDIN])
                }
            },
            size = next(&mut sizes) => match size {
                Some(size) => message(RESIZE, size.to_json().as_bytes()),
                None => {
                    sizes = None;
                    continue;
                }
            },
            _ = pings.tick() => Message::Ping(Bytes::new()),
        };
        if to.send(next).await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Returns the next value of a channel; waits forever if there is none.
async fn next<T>(from: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    match from {
        Some(from) => from.recv().await,
        None => std::future::pending().await,
    }
}

fn message(channel: u8, bytes: &[u8]) -> Message {
    let mut whole = Vec::with_capacity(bytes.len() + 1);
    whole.push(channel);
    whole.extend_from_slice(bytes);
    Message::Binary(whole.into())
}

/// Writes the output until the server closes the connection, and returns the outcome of the command.
async fn receive<S: Connection>(
    mut from: SplitStream<WebSocketStream<S>>,
    mut stdout: Option<Writer>,
    mut stderr: Option<Writer>,
) -> Result<(), StreamError> {
    let mut status = Vec::new();
    loop {
        // Time spent waiting for a slow reader of the output does not count as inactivity.
        let deadline = Instant::now() + SILENCE_MAX;
        let received = tokio::select! {
            received = from.next() => received,
            () = sleep_until(deadline) => return Err(lost("i/o timeout")),
        };
        let bytes = match received {
            Some(Ok(Message::Binary(bytes))) => bytes,
            Some(
                Ok(Message::Close(Some(CloseFrame { code: CloseCode::Normal, .. })))
                | Err(WebSocketError::ConnectionClosed),
            )
            | None => break,
            Some(Ok(Message::Close(frame))) => return Err(lost(&closed(frame.as_ref()))),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
            Some(Ok(Message::Text(_))) => return Err(lost("unexpected message type: 1")),
            Some(Err(_)) => return Err(lost("websocket: close 1006 (abnormal closure): unexpected EOF")),
        };
        match bytes.first() {
            Some(&STDOUT) => write(&mut stdout, &bytes[1..]).await?,
            Some(&STDERR) => write(&mut stderr, &bytes[1..]).await?,
            Some(&ERROR) if status.len() + bytes.len() <= STATUS_BYTES_MAX => status.extend_from_slice(&bytes[1..]),
            _ => {}
        }
    }
    decode_status(&status)
}

fn lost(reason: &str) -> StreamError {
    StreamError::Remote(format!("error reading from error stream: next reader: {reason}"))
}

fn closed(frame: Option<&CloseFrame>) -> String {
    match frame {
        Some(frame) => format!("websocket: close {}: {}", u16::from(frame.code), frame.reason),
        None => "websocket: close 1005 (no status)".to_owned(),
    }
}

async fn write(to: &mut Option<Writer>, bytes: &[u8]) -> Result<(), StreamError> {
    if let Some(to) = to
        && !bytes.is_empty()
    {
        to.write_all(bytes).await.map_err(StreamError::Output)?;
        to.flush().await.map_err(StreamError::Output)?;
    }
    Ok(())
}

async fn over_spdy(session: Session, protocol: &str, streams: Streams) -> Result<(), StreamError> {
    let Streams { stdin, stdout, stderr, tty, sizes } = streams;
    let error = session.open(named("error")).await?;
    let remote_stdin = if stdin.is_some() { Some(session.open(named("stdin")).await?.sender) } else { None };
    let remote_stdout = if stdout.is_some() { Some(session.open(named("stdout")).await?.data) } else { None };
    let remote_stderr = if stderr.is_some() && !tty { Some(session.open(named("stderr")).await?.data) } else { None };
    let resize = if tty { Some(session.open(named("resize")).await?.sender) } else { None };
    let output = async {
        tokio::try_join!(pour(remote_stdout, stdout), pour(remote_stderr, stderr))?;
        Ok::<_, StreamError>(collect(error.data).await)
    };
    let message = tokio::select! {
        message = output => message?,
        never = feed(session.opener(), (remote_stdin, stdin), (resize, sizes)) => match never {},
    };
    if has_status(protocol) {
        return decode_status(&message);
    }
    match message.is_empty() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&message);
            Err(StreamError::Remote(format!("error executing remote command: {text}")))
        }
    }
}

/// Whether the error channel of a protocol contains a Status instead of a text.
fn has_status(protocol: &str) -> bool {
    matches!(protocol, "v5.channel.k8s.io" | "v4.channel.k8s.io")
}

fn named(kind: &str) -> Headers {
    Headers::from([("streamtype".to_owned(), kind.to_owned())])
}

async fn pour(from: Option<mpsc::Receiver<Bytes>>, mut to: Option<Writer>) -> Result<(), StreamError> {
    let Some(mut from) = from else { return Ok(()) };
    while let Some(bytes) = from.recv().await {
        write(&mut to, &bytes).await?;
    }
    Ok(())
}

async fn collect(mut from: mpsc::Receiver<Bytes>) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = from.recv().await {
        if all.len() + bytes.len() <= STATUS_BYTES_MAX {
            all.extend_from_slice(&bytes);
        }
    }
    all
}

type Pair<T> = (Option<Sender>, Option<mpsc::Receiver<T>>);

/// Sends input, sizes and pings over SPDY. Failures to send are left to the receiver.
async fn feed(opener: Opener, stdin: Pair<Bytes>, sizes: Pair<Size>) -> std::convert::Infallible {
    let (to_stdin, mut stdin) = stdin;
    let (to_resize, mut sizes) = sizes;
    let mut pings = interval(PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let sent = tokio::select! {
            input = next(&mut stdin) => match (input, &to_stdin) {
                (Some(bytes), Some(to)) => to.send(&bytes).await,
                (_, Some(to)) => {
                    stdin = None;
                    to.finish().await
                }
                (_, None) => {
                    stdin = None;
                    Ok(())
                }
            },
            size = next(&mut sizes) => match (size, &to_resize) {
                (Some(size), Some(to)) => to.send(size.to_json().as_bytes()).await,
                _ => {
                    sizes = None;
                    Ok(())
                }
            },
            _ = pings.tick() => opener.ping().await,
        };
        if let Err(SpdyError::Io(_) | SpdyError::Closed | SpdyError::Protocol(_)) = sent {
            return std::future::pending().await;
        }
    }
}

#[cfg(test)]
mod tests;
