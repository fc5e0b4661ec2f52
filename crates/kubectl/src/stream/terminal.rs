//! The local terminal: raw mode, window sizes and input.

use std::future::Future;
use std::io::{IsTerminal, Read};

use bytes::Bytes;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::StreamError;
use super::detach::Detector;
use super::remote::Size;
use crate::Failure;

/// Maximum number of bytes per read of standard input.
const INPUT_BYTES: usize = 32 << 10;

/// The use of the terminal by a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Standard input is not read.
    NoInput,
    /// Standard input is passed on.
    Input,
    /// Standard input is a terminal in raw mode.
    Raw,
}

/// The mode for the flags `--stdin` and `--tty`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    pub mode: Mode,
    /// Whether a terminal was requested and standard input is not a terminal.
    pub not_a_terminal: bool,
}

impl Setup {
    /// The warning if a terminal was requested and there is none.
    pub const WARNING: &str = "Unable to use a TTY - input is not a terminal or the right kind of file";

    pub const fn new(stdin: bool, tty: bool, is_terminal: bool) -> Self {
        let mode = match (stdin, tty && is_terminal) {
            (false, _) => Mode::NoInput,
            (true, false) => Mode::Input,
            (true, true) => Mode::Raw,
        };
        Self { mode, not_a_terminal: stdin && tty && !is_terminal }
    }
}

/// Whether standard input is a terminal.
pub fn is_stdin_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// Returns the size of the terminal on standard output, if it is one.
pub fn size() -> Option<Size> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    Some(Size { width: size.ws_col, height: size.ws_row })
}

/// Runs a session of a terminal. Its attributes are restored when the session ends, also by a panic or a signal, which
/// ends the session with [`StreamError::Interrupted`].
pub async fn guard<T, E>(mode: Mode, session: impl Future<Output = Result<T, E>>) -> Result<T, E>
where
    E: From<StreamError>,
{
    if mode == Mode::NoInput || !is_stdin_terminal() {
        return session.await;
    }
    let _restore_on_drop =
        RestoreTerminal::new(mode == Mode::Raw).map_err(|error| StreamError::Output(error.into()))?;
    tokio::select! {
        outcome = session => outcome,
        () = termination() => Err(StreamError::Interrupted.into()),
    }
}

/// The attributes of the terminal before the session, set again on drop.
struct RestoreTerminal(Termios);

impl RestoreTerminal {
    fn new(raw: bool) -> rustix::io::Result<Self> {
        let before = tcgetattr(std::io::stdin())?;
        let restored = Self(before);
        if raw {
            let mut attributes = restored.0.clone();
            attributes.make_raw();
            tcsetattr(std::io::stdin(), OptionalActions::Now, &attributes)?;
        }
        Ok(restored)
    }
}

impl Drop for RestoreTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Runs `work` until it ends, or a signal ends it with exit code 1.
pub async fn interruptible<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        outcome = work => outcome,
        () = termination() => Err(Failure::silent(1)),
    }
}

/// Waits for a signal that ends a process.
async fn termination() {
    let kinds = [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate(), SignalKind::quit()];
    let mut signals: Vec<Signal> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
    let any = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
    futures_util::future::select_all(any).await;
}

/// Returns the given sizes, and then the size at each change of the window. `None` if standard output is not a
/// terminal.
pub fn watch_size(first: impl FnOnce(Size) -> Vec<Size>) -> Option<mpsc::Receiver<Size>> {
    let first = first(size()?);
    let (to, sizes) = mpsc::channel(first.len().max(1));
    let mut changes = signal(SignalKind::window_change()).ok()?;
    tokio::spawn(async move {
        for size in first {
            if to.send(size).await.is_err() {
                return;
            }
        }
        while changes.recv().await.is_some() {
            if let Some(size) = size()
                && to.send(size).await.is_err()
            {
                return;
            }
        }
    });
    Some(sizes)
}

/// Returns standard input in pieces, up to its end or the detach keys.
///
/// The reader is a separate thread: a blocked read cannot be cancelled, and the process must be able to exit.
pub fn input(mut detector: Option<Detector>) -> mpsc::Receiver<Bytes> {
    let (to, pieces) = mpsc::channel(4);
    std::thread::spawn(move || {
        let mut buffer = vec![0; INPUT_BYTES];
        loop {
            let count = match std::io::stdin().read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            let (bytes, detached) = match &mut detector {
                Some(detector) => {
                    let passed = detector.pass(&buffer[..count]);
                    (Bytes::from(passed.bytes), passed.detached)
                }
                None => (Bytes::copy_from_slice(&buffer[..count]), false),
            };
            if (!bytes.is_empty() && to.blocking_send(bytes).is_err()) || detached {
                return;
            }
        }
    });
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_is_raw_only_if_input_and_terminal_are_requested_and_there_is_one() {
        let check = |(stdin, tty, terminal): (bool, bool, bool), mode: Mode, warns: bool| {
            let found = Setup::new(stdin, tty, terminal);
            assert_eq!((found.mode, found.not_a_terminal), (mode, warns), "{stdin} {tty} {terminal}");
        };
        check((false, false, true), Mode::NoInput, false);
        check((false, true, true), Mode::NoInput, false);
        check((true, false, true), Mode::Input, false);
        check((true, true, false), Mode::Input, true);
        check((true, true, true), Mode::Raw, false);
    }
}
