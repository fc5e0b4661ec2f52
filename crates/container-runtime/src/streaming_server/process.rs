//! Exec and attach: connects the streams of a process to those of the client.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use container_shim::ExecIo;
use node_api::cri::v1;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::Winsize;
use tokio::sync::mpsc;

use super::fd::Fd;
use super::wire::{OutputMessage, SessionResult, Size, Wire};
use crate::blocking;
use crate::error::Error;
use crate::spec;
use crate::state::Runtime;

const READ_BYTES: usize = 32 << 10;

/// Runs a command for a client.
pub(super) async fn exec(runtime: &Runtime, request: v1::ExecRequest, wire: Wire) {
    let out = wire.out.clone();
    let end = match try_exec(runtime, &request, wire).await {
        Ok(code) => SessionResult::Exited { command: format!("{:?}", request.cmd), code },
        Err(error) => SessionResult::Failed(error.describe()),
    };
    // A disconnected client needs no result.
    let _ = out.send(OutputMessage::Result(end)).await;
}

async fn try_exec(runtime: &Runtime, request: &v1::ExecRequest, wire: Wire) -> Result<i32, Error> {
    let container = runtime.container(&request.container_id)?;
    let shim = runtime.shim_of(&container)?;
    let process = spec::exec(&blocking::in_place(|| container.spec())?, &request.cmd, request.tty);
    let id = container.record().id;
    let io = Error::io("connect the command's streams");
    if request.tty {
        let mut handle = shim.exec(&id, process, None).await?;
        let terminal = handle.terminal.take().ok_or_else(|| Error::State("no terminal came".to_owned()))?;
        let terminal = Arc::new(Fd::new(terminal).map_err(io)?);
        let Wire { stdin, resize, out } = wire;
        let input = tokio::spawn(type_into(stdin, Arc::clone(&terminal)));
        let sizes = tokio::spawn(resize_terminal(resize, Arc::clone(&terminal)));
        let output = tokio::spawn(show(terminal, out, OutputMessage::Stdout));
        let code = watched(handle.wait(), output).await;
        input.abort();
        sizes.abort();
        return code;
    }
    let made = (|| {
        let (stdin, to) = pipe_with(PipeFlags::CLOEXEC)?;
        let (from_out, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (from_err, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Fd::writer(to)?, Fd::reader(from_out)?, Fd::reader(from_err)?, ExecIo { stdin, stdout, stderr }))
    })();
    let (to, from_out, from_err, io) = made.map_err(io)?;
    let handle = shim.exec(&id, process, Some(io)).await?;
    let Wire { stdin, resize: _resize, out } = wire;
    let input = tokio::spawn(type_into(stdin, Arc::new(to)));
    let errors = tokio::spawn(show(Arc::new(from_err), out.clone(), OutputMessage::Stderr));
    let output = tokio::spawn(async move {
        show(Arc::new(from_out), out, OutputMessage::Stdout).await && errors.await.unwrap_or(false)
    });
    let code = watched(handle.wait(), output).await;
    input.abort();
    code
}

/// Waits for the exit and the remaining output. If the client disconnects, returns an error and the command is killed.
async fn watched(
    end: impl Future<Output = Result<i32, container_shim::ClientError>>,
    mut output: tokio::task::JoinHandle<bool>,
) -> Result<i32, Error> {
    tokio::pin!(end);
    tokio::select! {
        code = &mut end => {
            let code = code?;
            // Output that a background process keeps open is not waited for.
            let _ = tokio::time::timeout(std::time::Duration::from_secs(2), output).await;
            Ok(code)
        }
        result = &mut output => match result {
            Ok(true) => Ok(end.await?),
            _ => Err(Error::State("the client disconnected".to_owned())),
        },
    }
}

/// Connects a client to a container's streams.
pub(super) async fn attach(runtime: &Runtime, request: v1::AttachRequest, wire: Wire) {
    let out = wire.out.clone();
    let end = match try_attach(runtime, &request, wire).await {
        Ok(()) => SessionResult::Closed,
        Err(error) => SessionResult::Failed(error.describe()),
    };
    let _ = out.send(OutputMessage::Result(end)).await;
}

async fn try_attach(runtime: &Runtime, request: &v1::AttachRequest, wire: Wire) -> Result<(), Error> {
    let container = runtime.container(&request.container_id)?;
    let record = container.record();
    let shim = runtime.shim_of(&container)?;
    let pipe = || -> std::io::Result<(Fd, OwnedFd)> {
        let (from, to) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Fd::reader(from)?, to))
    };
    let io = || Error::io("connect the container's streams");
    let (from_out, stdout) = pipe().map_err(io())?;
    let (from_err, stderr) = pipe().map_err(io())?;
    let stderr = (!record.config.tty).then_some(stderr);
    let attached = shim.attach(&record.id, stdout, stderr).await?;
    let Wire { stdin, resize, out } = wire;
    let terminal = attached.stdin.filter(|_| request.stdin || record.config.tty);
    let target = match terminal {
        Some(fd) if record.config.tty => Some(Arc::new(Fd::new(fd).map_err(io())?)),
        Some(fd) => Some(Arc::new(Fd::writer(fd).map_err(io())?)),
        None => None,
    };
    let once = record.config.stdin_once && !record.config.tty;
    let mut sizes = None;
    let mut input = None;
    if let Some(target) = target {
        if record.config.tty {
            sizes = Some(tokio::spawn(resize_terminal(resize, Arc::clone(&target))));
        }
        if request.stdin {
            let (shim, id) = (shim.clone(), record.id.clone());
            input = Some(tokio::spawn(async move {
                type_into(stdin, target).await;
                if once {
                    // An exited container has no stdin to close.
                    let _ = shim.close_stdin(&id).await;
                }
            }));
        }
    }
    let mut errors = tokio::spawn(show(Arc::new(from_err), out.clone(), OutputMessage::Stderr));
    let output = async {
        show(Arc::new(from_out), out, OutputMessage::Stdout).await;
        let _ = (&mut errors).await;
    };
    // As with containerd, a client that ends its input detaches, unless the container waits for the end of its input.
    let detached = async {
        match &mut input {
            Some(input) if !once => drop(input.await),
            _ => std::future::pending().await,
        }
    };
    tokio::select! {
        () = output => {}
        () = detached => {}
    }
    errors.abort();
    for task in [sizes, input].into_iter().flatten() {
        task.abort();
    }
    Ok(())
}

/// Copies the client's input to the process; closes the descriptor at the end.
async fn type_into(mut stdin: mpsc::Receiver<Bytes>, to: Arc<Fd>) {
    while let Some(bytes) = stdin.recv().await {
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Copies the process's output to the client. Returns whether the client received all of it.
async fn show(from: Arc<Fd>, out: mpsc::Sender<OutputMessage>, kind: fn(Bytes) -> OutputMessage) -> bool {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return true,
            Ok(count) => {
                if out.send(kind(Bytes::copy_from_slice(&buffer[..count]))).await.is_err() {
                    return false;
                }
            }
        }
    }
}

async fn resize_terminal(mut sizes: mpsc::Receiver<Size>, terminal: Arc<Fd>) {
    while let Some(size) = sizes.recv().await {
        let size = Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
        if rustix::termios::tcsetwinsize(&*terminal, size).is_err() {
            return;
        }
    }
}
