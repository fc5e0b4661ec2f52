//! Exec, attach and port-forward over WebSocket: the first byte of a message is its channel.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use streaming::spdy::{Session, Side};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::forward;
use super::wire::{Ends, OutputMessage, SessionResult};
use crate::state::Runtime;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// Channel of version 5 that signals the end of another channel.
const CLOSE: u8 = 255;
/// WebSocket close code of a normal end.
const NORMAL: u16 = 1000;

/// Protocols for processes, best first; those without a version do not report success.
pub(super) const PROCESS: &[&str] =
    &["v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io"];
/// Protocols for port-forward, best first: SPDY inside WebSocket, or channels.
pub(super) const FORWARD: &[&str] = &[TUNNEL, "v4.channel.k8s.io"];
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

/// Copies messages between a WebSocket and the streams of a process until either side closes them.
pub(super) async fn process(socket: WebSocket, mut ends: Ends) {
    let protocol = socket.protocol().and_then(|name| name.to_str().ok()).unwrap_or_default().to_owned();
    let base64 = protocol.contains("base64");
    let (mut to, mut from) = socket.split();
    loop {
        tokio::select! {
            out = ends.out.recv() => {
                let (channel, bytes, last) = match out {
                    Some(OutputMessage::Stdout(bytes)) => (STDOUT, bytes, false),
                    Some(OutputMessage::Stderr(bytes)) => (STDERR, bytes, false),
                    Some(OutputMessage::Result(end)) => match last_word(&protocol, &end) {
                        Some(word) => (ERROR, Bytes::from(word), true),
                        None => break,
                    },
                    None => break,
                };
                if to.send(message(channel, &bytes, base64)).await.is_err() || last {
                    break;
                }
            }
            message = from.next() => match message {
                Some(Ok(Message::Binary(bytes))) => take(&payload(&bytes, base64), &mut ends).await,
                Some(Ok(Message::Text(text))) => take(&payload(text.as_bytes(), base64), &mut ends).await,
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
        }
    }
    let _ = to.send(Message::Close(Some(CloseFrame { code: NORMAL, reason: "".into() }))).await;
}

/// Returns the final message: a Status since version 4, before that an error text only.
fn last_word(protocol: &str, end: &SessionResult) -> Option<String> {
    if protocol.starts_with('v') { Some(end.status()) } else { end.text() }
}

async fn take(bytes: &[u8], ends: &mut Ends) {
    let Some((channel, rest)) = bytes.split_first() else { return };
    match (*channel, rest) {
        (CLOSE, [STDIN]) => ends.stdin = None,
        (STDIN, []) => {}
        (STDIN, rest) => {
            if let Some(stdin) = &ends.stdin {
                // Input for a process that no longer reads is dropped.
                let _ = stdin.send(Bytes::copy_from_slice(rest)).await;
            }
        }
        (RESIZE, rest) => {
            if let Ok(size) = serde_json::from_slice(rest) {
                let _ = ends.resize.try_send(size);
            }
        }
        _ => {}
    }
}

fn message(channel: u8, bytes: &[u8], base64: bool) -> Message {
    if base64 {
        return Message::Text(format!("{channel}{}", STANDARD.encode(bytes)).into());
    }
    let mut whole = Vec::with_capacity(bytes.len() + 1);
    whole.push(channel);
    whole.extend(bytes);
    Message::Binary(whole.into())
}

/// Decodes a message: a channel byte and raw bytes, or a channel digit and base64. The protocol decides, not the
/// message type, since clients send text messages with either.
fn payload(bytes: &[u8], base64: bool) -> Cow<'_, [u8]> {
    if !base64 {
        return Cow::Borrowed(bytes);
    }
    let Some((channel, rest)) = bytes.split_first().filter(|(channel, _)| channel.is_ascii_digit()) else {
        return Cow::Borrowed(&[]);
    };
    let mut whole = vec![channel - b'0'];
    whole.extend(STANDARD.decode(rest).unwrap_or_default());
    Cow::Owned(whole)
}

/// Forwards ports over a socket: tunnelled SPDY, or two channels per port.
pub(super) async fn forward(socket: WebSocket, runtime: Arc<Runtime>, sandbox: String, ports: Vec<u16>) {
    let tunnel = socket.protocol().and_then(|name| name.to_str().ok()) == Some(TUNNEL);
    if !tunnel {
        return forward::channels(socket, &runtime, &sandbox, &ports).await;
    }
    let (near, far) = tokio::io::duplex(64 << 10);
    let session = Session::new(near, Side::Server);
    let carry = tokio::spawn(carry(socket, far));
    forward::session(session, &runtime, &sandbox).await;
    let _ = carry.await;
}

/// Copies bytes between WebSocket messages and a byte stream.
async fn carry(socket: WebSocket, far: tokio::io::DuplexStream) {
    let (mut to, mut from) = socket.split();
    let (mut reader, mut writer) = tokio::io::split(far);
    let outward = async {
        let mut buffer = vec![0; 32 << 10];
        while let Ok(count @ 1..) = reader.read(&mut buffer).await {
            if to.send(Message::Binary(Bytes::copy_from_slice(&buffer[..count]))).await.is_err() {
                return;
            }
        }
    };
    let inward = async {
        while let Some(Ok(message)) = from.next().await {
            match message {
                Message::Binary(bytes) if writer.write_all(&bytes).await.is_ok() => {}
                Message::Ping(_) | Message::Pong(_) => {}
                _ => return,
            }
        }
    };
    tokio::select! {
        () = outward => {}
        () = inward => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Size, wire};
    use super::*;

    #[tokio::test]
    async fn channels_are_distinguished() {
        let (mut ends, mut process) = wire();
        take(b"\x00hello", &mut ends).await;
        take(b"\x04{\"Width\":80,\"Height\":24}", &mut ends).await;
        take(b"\x04nonsense", &mut ends).await;
        take(b"", &mut ends).await;
        assert_eq!(process.stdin.recv().await.unwrap(), "hello");
        assert_eq!(process.resize.recv().await, Some(Size { width: 80, height: 24 }));
        take(b"\xff\x00", &mut ends).await;
        assert!(process.stdin.recv().await.is_none());
    }

    #[test]
    fn unversioned_protocols_do_not_report_success() {
        let exited = |code| SessionResult::Exited { command: "[\"false\"]".to_owned(), code };
        for protocol in PROCESS {
            let is_first = matches!(*protocol, "channel.k8s.io" | "base64.channel.k8s.io");
            assert_eq!(last_word(protocol, &exited(0)).is_none(), is_first, "{protocol}");
            let failed = last_word(protocol, &exited(1)).unwrap();
            assert_eq!(failed.starts_with("error executing command"), is_first, "{protocol}: {failed}");
        }
        assert_eq!(last_word("", &exited(0)), None, "a client that offers none");
    }

    #[test]
    fn protocol_decides_whether_messages_are_base64() {
        let check = |bytes: &[u8], base64: bool, expect: &[u8]| assert_eq!(&*payload(bytes, base64), expect);
        check(b"0aGk=", true, b"\x00hi");
        check(b"x", true, b"");
        check(b"", true, b"");
        check(b"\x00hi", false, b"\x00hi");
        assert_eq!(message(1, b"hi", true), Message::Text("1aGk=".into()));
    }
}
