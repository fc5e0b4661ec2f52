//! Certificate renewal while the cluster runs: before expiry, or on SIGHUP.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use pki::Pki;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::certificates;
use super::plan::Layout;

/// Maximum interval between checks. A certificate may need renewal earlier than computed: clocks are changed, hosts are
/// suspended, and files are deleted.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Minimum interval between checks, also after a failure.
const CHECK_INTERVAL_MIN: Duration = Duration::from_secs(60);

/// Installs the SIGHUP handler, so that the signal no longer terminates the process.
pub(super) fn install_hangup_handler() -> Result<Signal> {
    Ok(signal(SignalKind::hangup())?)
}

/// Renews certificates that are about to expire, while the future is polled. SIGHUP triggers a check.
///
/// Only files change. The API server reloads its files, and so does every client whose kubeconfig names them.
pub(super) async fn keep(pki: &Pki, layout: &Layout, mut hangup: Signal) -> Result<()> {
    loop {
        let wait = until_next(pki.next_renewal()?, SystemTime::now());
        tokio::select! {
            _ = hangup.recv() => tracing::info!("received SIGHUP; checking certificates"),
            () = tokio::time::sleep(wait) => {}
        }
        match certificates(pki, layout) {
            Ok(()) => tracing::info!("certificates are valid"),
            Err(error) => tracing::error!(error = format!("{error:#}"), "failed to renew certificates; retrying"),
        }
    }
}

/// Returns the time until the next check.
fn until_next(renewal: Option<SystemTime>, now: SystemTime) -> Duration {
    let wait = renewal.map_or(CHECK_INTERVAL_MAX, |at| at.duration_since(now).unwrap_or_default());
    wait.clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_checked_when_due_and_daily_but_at_most_every_minute() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let check = |due: Option<i64>, expect: u64| {
            let due = due.map(|seconds| match u64::try_from(seconds) {
                Ok(later) => now + Duration::from_secs(later),
                Err(_) => now - Duration::from_secs(seconds.unsigned_abs()),
            });
            assert_eq!(until_next(due, now).as_secs(), expect);
        };
        check(None, 86_400);
        check(Some(3600), 3600);
        check(Some(1_000_000), 86_400);
        check(Some(0), 60);
        check(Some(-5), 60);
    }
}
