//! `knarr pause`: the entry point of `knarr.local/pause`, which waits for a signal and reaps orphaned processes.

use clap::{ArgMatches, Command};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) fn arguments(command: Command) -> Command {
    command.hide(true)
}

/// Waits for SIGTERM or SIGINT.
pub(crate) fn run(_matches: &ArgMatches) -> anyhow::Result<()> {
    let executor = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    executor.block_on(async {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let mut child = signal(SignalKind::child())?;
        loop {
            tokio::select! {
                _ = term.recv() => return Ok(()),
                _ = int.recv() => return Ok(()),
                // PID 1 of a PID namespace is the parent of all orphaned processes.
                _ = child.recv() => while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {},
            }
        }
    })
}
