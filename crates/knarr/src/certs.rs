//! `knarr certs`: the certificates of a cluster, and when they end.

use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Result, ensure};
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use pki::{Pki, days_left};

/// Certificates of the cluster of this machine.
#[derive(Args, Debug)]
struct Certs {
    /// The cluster's folder.
    #[arg(long, default_value = "/var/lib/knarr", global = true)]
    data_dir: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// List them, with their ends.
    Ls,
    /// Make all but the authorities anew at the next start.
    Rotate,
}

pub fn arguments(command: clap::Command) -> clap::Command {
    Certs::augment_args(command)
}

/// Lists or rotates.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let Certs { data_dir, what } = Certs::from_arg_matches(matches)?;
    let folder = data_dir.join("pki");
    ensure!(folder.is_dir(), "there is no cluster in {}", data_dir.display());
    let pki = Pki::open(&folder)?;
    match what {
        What::Ls => {
            let now = SystemTime::now();
            println!("{:<28} {:<36} {:<20} DAYS LEFT", "NAME", "USER", "GROUP");
            for (name, seen) in pki.list()? {
                let left = days_left(seen.not_after, now);
                println!("{name:<28} {:<36} {:<20} {left}", seen.common_name, seen.organization);
            }
        }
        What::Rotate => {
            pki.forget()?;
            println!("new certificates are made at the next start of the cluster; the authorities stay");
        }
    }
    Ok(())
}
