//! `knarr certs`: lists and rotates the certificates of a cluster.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use pki::{CertificateAuthority, Pki, days_left};
use rustix::process::{Pid, Signal, kill_process};

use crate::output::outln;
use crate::up::Instance;

/// Time limit for a running cluster to write new certificates, and the polling interval.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// List and rotate the certificates of the cluster on this host.
#[derive(Args, Debug)]
struct Certs {
    /// Data directory of the cluster.
    #[arg(long, default_value = "/var/lib/knarr", global = true)]
    data_dir: PathBuf,
    #[command(subcommand)]
    what: CertsCommand,
}

#[derive(Subcommand, Debug)]
enum CertsCommand {
    /// List certificates and their expiry.
    Ls,
    /// Renew all certificates except the CAs: immediately if the cluster runs, otherwise at its next start.
    Rotate,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Certs::augment_args(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let Certs { data_dir, what } = Certs::from_arg_matches(matches)?;
    let dir = data_dir.join("pki");
    ensure!(dir.is_dir(), "no cluster in {}", data_dir.display());
    let pki = Pki::at(&dir);
    match what {
        CertsCommand::Ls => {
            let now = SystemTime::now();
            outln!("{:<28} {:<36} {:<20} DAYS LEFT", "NAME", "USER", "GROUP");
            for (name, seen) in pki.list()? {
                let left = days_left(seen.not_after, now);
                outln!("{name:<28} {:<36} {:<20} {left}", seen.common_name, seen.organization);
            }
        }
        CertsCommand::Rotate => rotate(&pki, &data_dir)?,
    }
    Ok(())
}

fn rotate(pki: &Pki, data_dir: &Path) -> Result<()> {
    ensure!(
        pki.ca_pair(CertificateAuthority::Cluster).key.is_file(),
        "this host is not a server: its certificates are issued by the cluster and renewed automatically"
    );
    let before = pki.list()?;
    let admin = || std::fs::read(data_dir.join("admin.kubeconfig")).ok();
    let admin_before = admin();
    let holder = Instance::holder(data_dir)?;
    // SIGHUP terminates a process that has not installed its signal handler yet.
    ensure!(holder.is_none() || Instance::is_ready(data_dir), "the cluster is starting; try again when it is ready");
    pki.remove_certificates()?;
    let Some(process) = holder else {
        outln!("new certificates will be created at the next start of the cluster; the CAs are kept");
        return Ok(());
    };
    let id = i32::try_from(process).ok().and_then(Pid::from_raw).context("the PID is invalid")?;
    kill_process(id, Signal::HUP).with_context(|| format!("failed to send SIGHUP to process {process}"))?;
    let deadline = Instant::now() + TIMEOUT;
    // admin.kubeconfig is written last, after all certificates.
    while pki.list().map_or(0, |now| now.len()) < before.len() || (admin_before.is_some() && admin() == admin_before) {
        ensure!(Instant::now() < deadline, "process {process} has not renewed its certificates; see knarr.log");
        std::thread::sleep(POLL_INTERVAL);
    }
    outln!(
        "process {process} renewed {} certificates; the CAs are kept",
        before.len() - CertificateAuthority::ALL.len()
    );
    outln!("admin.kubeconfig was replaced; copies of the old one work until it expires");
    Ok(())
}
