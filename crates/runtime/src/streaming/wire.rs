//! What a process's client sends and gets, whatever the protocol.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

/// Pieces on their way: a slow side makes the other wait.
pub const PIECES: usize = 16;

/// A client's end as the process sees it.
pub struct Wire {
    /// What it types; closed when it has typed everything.
    pub stdin: mpsc::Receiver<Bytes>,
    /// Sizes of its window.
    pub resize: mpsc::Receiver<Size>,
    /// What it gets to see.
    pub out: mpsc::Sender<Out>,
}

/// Something for the client.
#[derive(Debug, PartialEq, Eq)]
pub enum Out {
    Stdout(Bytes),
    Stderr(Bytes),
    /// The end, said once.
    End(End),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Exited {
        command: String,
        code: i32,
    },
    /// An attached stream is over.
    Over,
    Failed(String),
}

/// A window's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Size {
    pub width: u16,
    pub height: u16,
}

impl End {
    /// As the fourth and later versions of the protocol say it: a Status.
    pub fn status(&self) -> String {
        let status = match self {
            End::Over | End::Exited { code: 0, .. } => json!({"metadata": {}, "status": "Success"}),
            End::Exited { command, code } => json!({
                "metadata": {},
                "status": "Failure",
                "message": format!(
                    "command terminated with non-zero exit code: error executing command {command}, exit code {code}"
                ),
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
            End::Failed(message) => json!({
                "metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500,
                "details": {"causes": [{"message": message}]},
            }),
        };
        status.to_string()
    }

    /// As earlier versions say it: words, and nothing for success.
    pub fn text(&self) -> Option<String> {
        match self {
            End::Over | End::Exited { code: 0, .. } => None,
            End::Exited { command, code } => Some(format!("error executing command {command}, exit code {code}")),
            End::Failed(message) => Some(message.clone()),
        }
    }
}

/// Both ends of a wire: the protocol's and the process's.
pub fn wire() -> (Ends, Wire) {
    let (stdin_in, stdin) = mpsc::channel(PIECES);
    let (resize_in, resize) = mpsc::channel(PIECES);
    let (out, out_of) = mpsc::channel(PIECES);
    (Ends { stdin: Some(stdin_in), resize: resize_in, out: out_of }, Wire { stdin, resize, out })
}

/// A wire as the protocol sees it.
pub struct Ends {
    /// None once the client has typed everything.
    pub stdin: Option<mpsc::Sender<Bytes>>,
    pub resize: mpsc::Sender<Size>,
    pub out: mpsc::Receiver<Out>,
}
