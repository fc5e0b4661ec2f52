//! ExecSync: commands in containers whose output is collected.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use container_shim::ExecIo;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::blocking;
use crate::error::Error;
use crate::spec;
use crate::state::{Container, Runtime};

/// Maximum bytes of output; the rest is discarded, as in other runtimes.
const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// Timeout for remaining output after the exit: a background process may keep the output open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// The output and exit code of a command.
pub(crate) struct Output {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub code: i32,
}

impl Runtime {
    /// Runs a command to completion; kills it after the timeout.
    pub(crate) async fn exec_sync(
        &self,
        id: &str,
        command: &[String],
        timeout: Option<Duration>,
    ) -> Result<Output, Error> {
        if command.is_empty() {
            return Err(Error::Invalid("cmd: required".to_owned()));
        }
        let container = self.container(id)?;
        let process = spec::exec(&blocking::in_place(|| container.spec())?, command, false);
        let pipes = Error::io("make pipes");
        let made = (|| {
            let (out, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
            let (err, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
            let stdin = OwnedFd::from(std::fs::File::open("/dev/null")?);
            Ok((reader(out)?, reader(err)?, ExecIo { stdin, stdout, stderr }))
        })();
        let (out, err, io) = made.map_err(pipes)?;
        let shim = self.shim_of(&container)?;
        let run = async {
            let handle = shim.exec(&container.record().id, process, Some(io)).await?;
            let (out, err) = (StreamCollector::start(out), StreamCollector::start(err));
            let code = handle.wait().await?;
            let deadline = Instant::now() + DRAIN_TIMEOUT;
            Ok(Output { stdout: out.by(deadline).await, stderr: err.by(deadline).await, code })
        };
        match timeout {
            None => run.await,
            Some(limit) => tokio::time::timeout(limit, run).await.unwrap_or_else(|_| {
                Err(Error::Deadline(format!(
                    "command {:?} timed out after {} seconds",
                    command.join(" "),
                    limit.as_secs()
                )))
            }),
        }
    }

    /// Returns the client of the shim that runs a container.
    pub(crate) fn shim_of(&self, container: &Container) -> Result<container_shim::Client, Error> {
        Ok(self.sandbox(&container.record().sandbox)?.shim.clone())
    }
}

fn reader(fd: OwnedFd) -> std::io::Result<Receiver> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    Receiver::from_owned_fd(fd)
}

/// A stream that is being read into memory.
struct StreamCollector {
    bytes: Arc<Mutex<Vec<u8>>>,
    task: JoinHandle<()>,
}

impl StreamCollector {
    fn start(mut from: Receiver) -> StreamCollector {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&bytes);
        let task = tokio::spawn(async move {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = from.read(&mut buffer).await {
                let mut to = to.lock().expect("no holder of the output panics");
                let remaining = OUTPUT_BYTES_MAX.saturating_sub(to.len());
                to.extend_from_slice(&buffer[..count.min(remaining)]);
            }
        });
        StreamCollector { bytes, task }
    }

    /// Returns the bytes received by the deadline.
    async fn by(mut self, deadline: Instant) -> Vec<u8> {
        if tokio::time::timeout_at(deadline, &mut self.task).await.is_err() {
            self.task.abort();
        }
        std::mem::take(&mut *self.bytes.lock().expect("no holder of the output panics"))
    }
}
