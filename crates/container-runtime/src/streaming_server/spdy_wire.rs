//! Exec and attach over SPDY: one SPDY stream for each stream of a process.

use std::time::Duration;

use streaming::spdy::{Sender, Session, Stream};
use tokio::sync::mpsc;

use super::wire::{Ends, OutputMessage};

/// Timeout for a client to open its streams.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Protocols for processes, best first.
pub(super) const PROCESS: &[&str] = &["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
/// The protocol for port-forward.
pub(super) const FORWARD: &[&str] = &["portforward.k8s.io"];

/// The streams that a client has to open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExpectedStreams {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub resize: bool,
}

#[derive(Default)]
struct Streams {
    error: Option<Stream>,
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    resize: Option<Stream>,
}

impl Streams {
    fn complete(&self, expected: ExpectedStreams) -> bool {
        self.error.is_some()
            && (!expected.stdin || self.stdin.is_some())
            && (!expected.stdout || self.stdout.is_some())
            && (!expected.stderr || self.stderr.is_some())
            && (!expected.resize || self.resize.is_some())
    }
}

/// Copies data between a session's streams and the streams of a process until either side closes them.
pub(super) async fn process(mut session: Session, ends: Ends, expected: ExpectedStreams, version: &str) {
    let Ok(Some(streams)) = tokio::time::timeout(OPEN_TIMEOUT, collect(&mut session, expected)).await else { return };
    let Ends { stdin, resize, mut out } = ends;
    if let (Some(from), Some(to)) = (streams.stdin, stdin) {
        tokio::spawn(pour(from.data, to));
    }
    if let Some(mut sizes) = streams.resize {
        tokio::spawn(async move {
            let mut text = Vec::new();
            while let Some(piece) = sizes.data.recv().await {
                text.extend_from_slice(&piece);
                // Terminal sizes are consecutive JSON values without separators.
                let mut values = serde_json::Deserializer::from_slice(&text).into_iter();
                while let Some(Ok(size)) = values.next() {
                    let _ = resize.try_send(size);
                }
                let done = values.byte_offset();
                text.drain(..done);
                if text.len() > 4096 {
                    return;
                }
            }
        });
    }
    let sender = |stream: &Option<Stream>| stream.as_ref().map(|stream| stream.sender.clone());
    let (stdout, stderr, error) = (sender(&streams.stdout), sender(&streams.stderr), sender(&streams.error));
    let disconnected = async { while session.accept().await.is_some() {} };
    let show = async {
        while let Some(piece) = out.recv().await {
            let sent = match piece {
                OutputMessage::Stdout(bytes) => send(stdout.as_ref(), &bytes).await,
                OutputMessage::Stderr(bytes) => send(stderr.as_ref(), &bytes).await,
                OutputMessage::Result(end) => {
                    let text = if version == PROCESS[0] { Some(end.status()) } else { end.text() };
                    send(error.as_ref(), text.unwrap_or_default().as_bytes()).await;
                    for stream in [&stdout, &stderr, &error].into_iter().flatten() {
                        let _ = stream.finish().await;
                    }
                    return;
                }
            };
            if !sent {
                return;
            }
        }
    };
    tokio::pin!(disconnected);
    tokio::select! {
        () = &mut disconnected => {}
        () = show => {
            // The client closes the connection when it has read everything; this wait is bounded.
            let _ = tokio::time::timeout(OPEN_TIMEOUT, disconnected).await;
        }
    }
}

async fn collect(session: &mut Session, expected: ExpectedStreams) -> Option<Streams> {
    let mut streams = Streams::default();
    while !streams.complete(expected) {
        let stream = session.accept().await?;
        let slot = match stream.headers.get("streamtype").map(String::as_str) {
            Some("error") => &mut streams.error,
            Some("stdin") => &mut streams.stdin,
            Some("stdout") => &mut streams.stdout,
            Some("stderr") => &mut streams.stderr,
            Some("resize") => &mut streams.resize,
            _ => return None,
        };
        *slot = Some(stream);
    }
    Some(streams)
}

async fn pour(mut from: mpsc::Receiver<bytes::Bytes>, to: mpsc::Sender<bytes::Bytes>) {
    while let Some(piece) = from.recv().await {
        if to.send(piece).await.is_err() {
            return;
        }
    }
}

async fn send(to: Option<&Sender>, bytes: &[u8]) -> bool {
    match to {
        Some(sender) if !bytes.is_empty() => sender.send(bytes).await.is_ok(),
        _ => true,
    }
}
