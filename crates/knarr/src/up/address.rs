//! Changes of the host's IP address: the process re-executes itself with the new address.
//!
//! Certificates, listeners, flags and objects all contain the address. A cluster restarts within a second, so a restart
//! is the simplest way to update all of them.

use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::mpsc;

use super::Options;
use super::preflight::addresses_or;

/// Delay before a new address is used. Its routes may follow later, and a lost address may come back.
const SETTLES: Duration = Duration::from_secs(1);

/// Waits until the host has addresses other than `now`. Never returns if `--node-ip` is given.
pub(crate) async fn changed(options: &Options, now: &[IpAddr]) -> Result<()> {
    if !options.node_ip.is_empty() {
        return std::future::pending().await;
    }
    let found = || addresses_or(&[], &options.service_cidr).ok();
    let mut changes = heard()?;
    loop {
        match found() {
            Some(same) if same == now => {
                if changes.recv().await.is_none() {
                    return std::future::pending().await;
                }
            }
            Some(other) => {
                tokio::time::sleep(SETTLES).await;
                if found().as_ref() == Some(&other) {
                    tracing::warn!(before = ?now, seen = ?other, "the address of this host changed; restarting");
                    return Ok(());
                }
            }
            // No default route exists, and new routes are not reported.
            None => tokio::time::sleep(SETTLES).await,
        }
    }
}

/// Re-executes this process with the same arguments. Returns only on an error.
pub(crate) fn re_execute() -> Result<()> {
    let program = std::env::current_exe().context("failed to find the path of this executable")?;
    let failed = Command::new(program).args(std::env::args_os().skip(1)).exec();
    Err(failed).context("failed to re-execute this process")
}

/// Returns a channel that receives a value whenever links or addresses change.
fn heard() -> Result<mpsc::Receiver<()>> {
    let mut changes = netlink::link::Changes::open().context("failed to watch the addresses of this host")?;
    let (sender, heard) = mpsc::channel(1);
    std::thread::Builder::new().name("addresses".to_owned()).spawn(move || {
        // The channel holds one value, which stands for all changes since the last read.
        while changes.wait().is_ok() && !matches!(sender.try_send(()), Err(mpsc::error::TrySendError::Closed(()))) {}
    })?;
    Ok(heard)
}
