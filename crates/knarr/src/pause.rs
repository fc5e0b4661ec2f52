//! `knarr pause`: the program of the image `knarr.local/pause`, which waits to be ended and buries what is left to it.

use clap::{ArgMatches, Command};
use tokio::signal::unix::{SignalKind, signal};

/// It takes none.
pub fn arguments(command: Command) -> Command {
    command.hide(true)
}

/// Waits for SIGTERM or SIGINT.
pub fn run(_matches: &ArgMatches) -> anyhow::Result<()> {
    let executor = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    executor.block_on(async {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let mut child = signal(SignalKind::child())?;
        loop {
            tokio::select! {
                _ = term.recv() => return Ok(()),
                _ = int.recv() => return Ok(()),
                // As the first process of a namespace it is the parent of all who lost theirs.
                _ = child.recv() => while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {},
            }
        }
    })
}
