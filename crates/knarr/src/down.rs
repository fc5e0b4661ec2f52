//! `knarr down`: stops the cluster of this machine, and with `--purge` leaves nothing of it.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{ArgMatches, Args, FromArgMatches};
use rustix::process::{Pid, Signal, kill_process};

use crate::up::Instance;

/// The end of a cluster.
#[derive(Args, Debug)]
struct Down {
    /// The cluster's folder.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Remove everything that the cluster kept.
    #[arg(long)]
    purge: bool,
}

pub fn arguments(command: clap::Command) -> clap::Command {
    Down::augment_args(command)
}

/// Stops the process, then the pods, then forgets them if asked to.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let Down { data_dir, purge } = Down::from_arg_matches(matches)?;
    let shown = data_dir.display();
    ensure!(data_dir.is_dir(), "there is no cluster in {shown}");
    ensure!(
        data_dir.join("knarr.lock").is_file(),
        "{shown} has never been the folder of a cluster, so nothing in it is touched"
    );
    match Instance::holder(&data_dir)? {
        None => println!("no process runs the cluster in {shown}"),
        Some(process) => {
            let id = i32::try_from(process).ok().and_then(Pid::from_raw).context("a process has a number")?;
            kill_process(id, Signal::TERM).with_context(|| format!("process {process} cannot be stopped"))?;
            Instance::wait_for_end(&data_dir)?;
            println!("stopped process {process}");
        }
    }
    if purge {
        std::fs::remove_dir_all(&data_dir).with_context(|| format!("{shown} cannot be removed"))?;
        println!("removed {shown}");
    }
    Ok(())
}
