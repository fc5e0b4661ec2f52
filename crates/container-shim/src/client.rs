//! Client of a shim, used by the container runtime.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, Interest};
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::connection::{receive, send};
use crate::private;
use crate::program::Program;
use crate::protocol::{Exec, READY, Reply, Request, SOCKET, Sandbox, Start, State};

/// Timeout for a shim to open its socket.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum size of a reply.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// A request to a shim failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot start a shim")]
    Spawn(#[source] io::Error),
    #[error("cannot reach the shim in {dir}")]
    Connect {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the shim closed the connection")]
    ConnectionLost(#[source] io::Error),
    /// The shim's error message.
    #[error("{0}")]
    Failed(String),
}

/// A started process.
#[derive(Clone, Debug)]
pub struct Running {
    pub pid: i32,
    /// Start time in Unix nanoseconds.
    pub at_nanos: i64,
    /// Settings that could not be applied.
    pub warnings: Vec<String>,
}

/// Starts a shim in a directory: a subcommand of this binary that outlives its parent. Waits until it listens.
pub async fn spawn(program: &Program, args: &[&str], dir: &Path) -> Result<Client, ClientError> {
    let log = private::create(&dir.join("shim.log")).map_err(ClientError::Spawn)?;
    let mut command = Command::new(program.path());
    command.arg0("knarr").args(args).arg(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).env_clear();
    // Signals to the runtime's process group and terminal must not reach the shim.
    command.process_group(0);
    let mut child = command.spawn().map_err(ClientError::Spawn)?;
    // Containers inherit the shim's limit.
    if let Some(pid) = child.id() {
        sys::restore_open_files(pid).map_err(ClientError::Spawn)?;
    }
    let mut stdout = child.stdout.take().expect("its output is a pipe");
    // The runtime is the shim's parent while it lives and must reap it.
    tokio::spawn(async move { child.wait().await });
    let mut ready = [0; READY.len()];
    let started = tokio::time::timeout(START_TIMEOUT, stdout.read_exact(&mut ready)).await;
    match started {
        Ok(Ok(_)) if ready == *READY => Ok(Client::new(dir)),
        Err(_) => Err(ClientError::Spawn(io::ErrorKind::TimedOut.into())),
        Ok(_) => {
            let text = std::fs::read_to_string(dir.join("shim.log")).unwrap_or_default();
            Err(ClientError::Spawn(io::Error::other(text.trim().to_owned())))
        }
    }
}

/// A shim, identified by its directory.
#[derive(Clone, Debug)]
pub struct Client {
    dir: PathBuf,
}

/// Standard streams of an exec.
#[derive(Debug)]
pub struct ExecIo {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// The streams of an attached client in addition to its output descriptors.
#[derive(Debug, Default)]
pub struct AttachedIo {
    /// The container's stdin, or its terminal.
    pub stdin: Option<OwnedFd>,
}

/// The connection of an exec; closing it kills the process.
#[derive(Debug)]
pub struct ExecHandle {
    line: Line,
    /// The terminal, if requested.
    pub terminal: Option<OwnedFd>,
}

impl ExecHandle {
    /// Waits for the exit and returns the exit code.
    pub async fn wait(mut self) -> Result<i32, ClientError> {
        match self.line.reply().await?.0 {
            Reply::ExecExited { code } => Ok(code),
            other => Err(unexpected(&other)),
        }
    }
}

/// The event stream of a shim.
#[derive(Debug)]
pub struct Events {
    line: Line,
}

impl Events {
    /// Returns the next event; fails when the shim has exited.
    pub async fn next(&mut self) -> Result<Reply, ClientError> {
        Ok(self.line.reply().await?.0)
    }
}

impl Client {
    /// Returns the client of a directory, whether or not its shim runs.
    pub fn new(dir: &Path) -> Client {
        Client { dir: dir.to_owned() }
    }

    /// Starts the process that holds the sandbox's namespaces.
    pub async fn sandbox(&self, sandbox: Sandbox) -> Result<Running, ClientError> {
        running(self.call(&Request::Sandbox(sandbox), &[]).await?.0)
    }

    /// Creates and starts a container.
    pub async fn start(&self, start: Start) -> Result<Running, ClientError> {
        running(self.call(&Request::Start(start), &[]).await?.0)
    }

    /// Runs a process in a container; without streams it gets a terminal.
    pub async fn exec(
        &self,
        id: &str,
        process: serde_json::Value,
        io: Option<ExecIo>,
    ) -> Result<ExecHandle, ClientError> {
        let request = Request::Exec(Exec { id: id.to_owned(), process, terminal: io.is_none() });
        let fds = io.as_ref().map(|io| vec![io.stdin.as_fd(), io.stdout.as_fd(), io.stderr.as_fd()]);
        let mut line = self.connect().await?;
        line.request(&request, &fds.unwrap_or_default()).await?;
        drop(io);
        let (reply, terminal) = line.reply().await?;
        running(reply)?;
        Ok(ExecHandle { line, terminal })
    }

    /// Copies a container's output from now on.
    pub async fn attach(&self, id: &str, stdout: OwnedFd, stderr: Option<OwnedFd>) -> Result<AttachedIo, ClientError> {
        let mut fds = vec![stdout.as_fd()];
        fds.extend(stderr.as_ref().map(AsFd::as_fd));
        let (reply, stdin) = self.call(&Request::Attach { id: id.to_owned() }, &fds).await?;
        done(reply)?;
        Ok(AttachedIo { stdin })
    }

    pub async fn close_stdin(&self, id: &str) -> Result<(), ClientError> {
        done(self.call(&Request::CloseStdin { id: id.to_owned() }, &[]).await?.0)
    }

    /// Opens a container's log again after a rotation.
    pub async fn reopen_log(&self, id: &str) -> Result<(), ClientError> {
        done(self.call(&Request::ReopenLog { id: id.to_owned() }, &[]).await?.0)
    }

    /// Signals a container's init process, or all of its processes.
    pub async fn signal(&self, id: &str, signal: i32, all: bool) -> Result<(), ClientError> {
        done(self.call(&Request::Signal { id: id.to_owned(), signal, all }, &[]).await?.0)
    }

    /// Removes an exited container from the shim.
    pub async fn remove(&self, id: &str) -> Result<(), ClientError> {
        done(self.call(&Request::Remove { id: id.to_owned() }, &[]).await?.0)
    }

    /// Returns the current state and the events from then on.
    pub async fn follow(&self) -> Result<(State, Events), ClientError> {
        let mut line = self.connect().await?;
        line.request(&Request::Follow, &[]).await?;
        match line.reply().await?.0 {
            Reply::State(state) => Ok((state, Events { line })),
            other => Err(unexpected(&other)),
        }
    }

    /// Terminates the shim and all of its processes.
    pub async fn shutdown(&self) -> Result<(), ClientError> {
        done(self.call(&Request::Shutdown, &[]).await?.0)
    }

    async fn call(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(Reply, Option<OwnedFd>), ClientError> {
        let mut line = self.connect().await?;
        line.request(request, fds).await?;
        line.reply().await
    }

    async fn connect(&self) -> Result<Line, ClientError> {
        let failed = |source| ClientError::Connect { dir: self.dir.clone(), source };
        // The path leads through a descriptor of the directory, because socket paths are limited to 108 bytes.
        let dir = std::fs::File::open(&self.dir).map_err(failed)?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", std::os::fd::AsRawFd::as_raw_fd(&dir));
        let socket = UnixStream::connect(path).await.map_err(failed)?;
        Ok(Line { socket, received: Vec::new(), fds: Vec::new() })
    }
}

/// A connection with one JSON text per line.
#[derive(Debug)]
struct Line {
    socket: UnixStream,
    received: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Line {
    async fn request(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        let mut text = serde_json::to_vec(request).map_err(|error| ClientError::ConnectionLost(error.into()))?;
        text.push(b'\n');
        let mut sent = 0;
        while sent < text.len() {
            let fds = if sent == 0 { fds } else { &[] };
            let attempt = || Ok(send(&self.socket, &text[sent..], fds)?);
            sent += self.socket.async_io(Interest::WRITABLE, attempt).await.map_err(ClientError::ConnectionLost)?;
        }
        Ok(())
    }

    async fn reply(&mut self) -> Result<(Reply, Option<OwnedFd>), ClientError> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                let reply = serde_json::from_slice(&line).map_err(|error| ClientError::ConnectionLost(error.into()))?;
                let fd = std::mem::take(&mut self.fds).into_iter().next();
                return match reply {
                    Reply::Failed { message } => Err(ClientError::Failed(message)),
                    reply => Ok((reply, fd)),
                };
            }
            let fds = &mut self.fds;
            let socket = &self.socket;
            let mut attempt = || Ok(receive(socket, &mut buffer, fds)?);
            let count = socket.async_io(Interest::READABLE, &mut attempt).await.map_err(ClientError::ConnectionLost)?;
            if count == 0 || self.received.len() + count > REPLY_BYTES_MAX {
                return Err(ClientError::ConnectionLost(io::ErrorKind::UnexpectedEof.into()));
            }
            self.received.extend_from_slice(&buffer[..count]);
        }
    }
}

fn running(reply: Reply) -> Result<Running, ClientError> {
    match reply {
        Reply::Started { pid, at_nanos, warnings } => Ok(Running { pid, at_nanos, warnings }),
        other => Err(unexpected(&other)),
    }
}

fn done(reply: Reply) -> Result<(), ClientError> {
    match reply {
        Reply::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(reply: &Reply) -> ClientError {
    ClientError::ConnectionLost(io::Error::other(format!("unexpected reply {reply:?}")))
}
