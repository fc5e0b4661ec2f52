//! Commands in containers whose output is collected.

use std::os::fd::OwnedFd;
use std::time::Duration;

use container::ExecIo;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

use crate::error::Error;
use crate::runtime::{Container, Runtime};
use crate::spec;

/// Output beyond it is thrown away, as other runtimes do.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;
/// What a command left running in the background may hold its output open; it is not waited for longer.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// What a command gave.
pub struct Output {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub code: i32,
}

impl Runtime {
    /// Runs a command to its end; one that takes too long is killed.
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
        let process = spec::exec(&container.spec()?, command, false);
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
            let (out, err) = (tokio::spawn(collect(out)), tokio::spawn(collect(err)));
            let code = handle.wait().await?;
            let rest = tokio::time::timeout(DRAIN_TIMEOUT, async { (out.await, err.await) }).await;
            let (stdout, stderr) = match rest {
                Ok((Ok(stdout), Ok(stderr))) => (stdout, stderr),
                _ => (Vec::new(), Vec::new()),
            };
            Ok(Output { stdout, stderr, code })
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

    /// The shim that keeps a container.
    pub(crate) fn shim_of(&self, container: &Container) -> Result<container::Client, Error> {
        Ok(self.sandbox(&container.record().sandbox)?.shim.clone())
    }
}

fn reader(fd: OwnedFd) -> std::io::Result<Receiver> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    Receiver::from_owned_fd(fd)
}

async fn collect(mut from: Receiver) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What came before an error is still the output.
    let _ = (&mut from).take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).await;
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    bytes
}
