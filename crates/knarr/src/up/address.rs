//! The machine's own address, followed: when it is another, everything begins anew with it.
//!
//! Certificates, listeners, flags and objects all have the address. A cluster may be killed at any time and is back within a
//! second, so to begin anew is the one way of following that leaves nothing out.

use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::mpsc;

use super::Options;
use super::preflight::addresses_or;

/// An address that comes is followed by its routes, and one that goes may come back: only what stays counts.
const SETTLES: Duration = Duration::from_secs(1);

/// Waits until the machine has other addresses than these. One that was told which it has is not asked.
pub async fn changed(options: &Options, now: &[IpAddr]) -> Result<()> {
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
                    tracing::warn!(before = ?now, seen = ?other, "this machine has another address; everything begins anew with it");
                    return Ok(());
                }
            }
            // The way out is missing, and nobody tells when a route comes.
            None => tokio::time::sleep(SETTLES).await,
        }
    }
}

/// Starts this program again in its own place, as it was started. Returns only if it cannot.
pub fn begin_anew() -> Result<()> {
    let program = std::env::current_exe().context("this program has no path")?;
    let failed = Command::new(program).args(std::env::args_os().skip(1)).exec();
    Err(failed).context("this program cannot be started again")
}

/// Something comes out whenever links or addresses change.
fn heard() -> Result<mpsc::Receiver<()>> {
    let mut changes = net::link::Changes::open().context("watch the addresses of this machine")?;
    let (tell, heard) = mpsc::channel(1);
    std::thread::Builder::new().name("addresses".to_owned()).spawn(move || {
        // One that waits to be heard stands for all that came meanwhile.
        while changes.wait().is_ok() && !matches!(tell.try_send(()), Err(mpsc::error::TrySendError::Closed(()))) {}
    })?;
    Ok(heard)
}
