//! The streams between a process and its client, independent of the protocol (SPDY or WebSocket).

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

/// Channel capacity; a slow side applies backpressure to the other.
pub(super) const PIECES: usize = 16;

/// The client's streams as seen by the process.
pub(super) struct Wire {
    /// Closed at the end of the client's input.
    pub stdin: mpsc::Receiver<Bytes>,
    /// Terminal sizes.
    pub resize: mpsc::Receiver<Size>,
    pub out: mpsc::Sender<OutputMessage>,
}

/// A message to the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutputMessage {
    Stdout(Bytes),
    Stderr(Bytes),
    /// Sent once, as the last message.
    Result(SessionResult),
}

/// The result of an exec or attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SessionResult {
    Exited {
        command: String,
        code: i32,
    },
    /// An attached stream was closed.
    Closed,
    Failed(String),
}

/// A terminal size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Size {
    pub width: u16,
    pub height: u16,
}

impl SessionResult {
    /// Returns the Status of protocol version 4 and later.
    pub(super) fn status(&self) -> String {
        let status = match self {
            SessionResult::Closed | SessionResult::Exited { code: 0, .. } => {
                json!({"metadata": {}, "status": "Success"})
            }
            SessionResult::Exited { command, code } => json!({
                "metadata": {},
                "status": "Failure",
                "message": format!(
                    "command terminated with non-zero exit code: error executing command {command}, exit code {code}"
                ),
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
            SessionResult::Failed(message) => json!({
                "metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500,
                "details": {"causes": [{"message": message}]},
            }),
        };
        status.to_string()
    }

    /// Returns the error text of protocol versions before 4; `None` for success.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            SessionResult::Closed | SessionResult::Exited { code: 0, .. } => None,
            SessionResult::Exited { command, code } => {
                Some(format!("error executing command {command}, exit code {code}"))
            }
            SessionResult::Failed(message) => Some(message.clone()),
        }
    }
}

/// Creates the connected ends of all streams: one for the protocol and one for the process.
pub(super) fn wire() -> (Ends, Wire) {
    let (stdin_in, stdin) = mpsc::channel(PIECES);
    let (resize_in, resize) = mpsc::channel(PIECES);
    let (out, out_of) = mpsc::channel(PIECES);
    (Ends { stdin: Some(stdin_in), resize: resize_in, out: out_of }, Wire { stdin, resize, out })
}

/// The streams as seen by the protocol.
pub(super) struct Ends {
    /// `None` after the end of the client's input.
    pub stdin: Option<mpsc::Sender<Bytes>>,
    pub resize: mpsc::Sender<Size>,
    pub out: mpsc::Receiver<OutputMessage>,
}
