//! Streams to containers: remote commands and forwarded ports over WebSocket, or over SPDY if the server rejects it.
//!
//! ```text
//!   command ──> remote::run ──> upgrade::websocket  v5.channel.k8s.io             ─┐
//!                          └──> upgrade::spdy       v5 … v1.channel.k8s.io         ├──> client::Client::switch
//!   ports ────> forward::run ─> upgrade::websocket  SPDY/3.1+portforward.k8s.io    │
//!                          └──> upgrade::spdy       portforward.k8s.io            ─┘
//! ```

pub mod detach;
pub mod forward;
pub mod listen;
pub mod path;
pub mod ports;
pub mod remote;
mod status;
pub mod terminal;
mod upgrade;

pub use status::decode_status;

use crate::Failure;

/// The exit code of a shell for a process that SIGPIPE terminated.
const BROKEN_PIPE_CODE: u8 = 141;

/// A stream failed, or its command did.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The command exited with a code other than zero.
    #[error("command terminated with exit code {0}")]
    Exit(u8),
    /// The server or the protocol failed.
    #[error("{0}")]
    Remote(String),
    /// The output cannot be written.
    #[error("{0}")]
    Output(std::io::Error),
    /// A signal ended the session.
    #[error("interrupted")]
    Interrupted,
}

impl From<streaming::spdy::SpdyError> for StreamError {
    fn from(error: streaming::spdy::SpdyError) -> Self {
        Self::Remote(error.to_string())
    }
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Client(error) => error.into(),
            StreamError::Exit(code) => Self::plain(error.to_string()).with_code(code),
            StreamError::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                Self::silent(BROKEN_PIPE_CODE)
            }
            StreamError::Output(error) => error.into(),
            StreamError::Interrupted => Self::silent(1),
            StreamError::Remote(text) => Self::new(text),
        }
    }
}

/// Whether an environment variable such as `KUBECTL_REMOTE_COMMAND_WEBSOCKETS` leaves a feature on, which is the
/// default.
pub fn is_enabled(value: Option<&str>) -> bool {
    !value.is_some_and(|value| value.eq_ignore_ascii_case("false"))
}
