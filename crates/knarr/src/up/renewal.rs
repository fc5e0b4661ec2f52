//! Certificates that never end: made anew in time, or when it is asked for, while everything runs.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use pki::Pki;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::certificates;
use super::plan::Layout;

/// Between two looks at most: clocks are set, machines sleep, files are removed.
const LOOK_AT_LEAST: Duration = Duration::from_secs(24 * 3600);
/// Between two looks at least, also if one could not be made.
const LOOK_AT_MOST: Duration = Duration::from_secs(60);

/// From now on a hang-up is a wish to look, and no longer the end of the process.
pub fn asked() -> Result<Signal> {
    Ok(signal(SignalKind::hangup())?)
}

/// Renews what is about to end, for as long as it is polled. Whoever wants it at once sends a hang-up.
///
/// Files are all that changes: the API server reads its own again, and so does every client whose kubeconfig names them.
pub async fn keep(pki: &Pki, layout: &Layout, mut asked: Signal) -> Result<()> {
    loop {
        let wait = until_next(pki.next_renewal()?, SystemTime::now());
        tokio::select! {
            _ = asked.recv() => tracing::info!("certificates are looked at because it is asked for"),
            () = tokio::time::sleep(wait) => {}
        }
        match certificates(pki, layout) {
            Ok(()) => tracing::info!("certificates are good"),
            Err(error) => tracing::error!(error = format!("{error:#}"), "certificates cannot be renewed; tried again"),
        }
    }
}

/// How long nothing needs to be done.
fn until_next(renewal: Option<SystemTime>, now: SystemTime) -> Duration {
    let wait = renewal.map_or(LOOK_AT_LEAST, |at| at.duration_since(now).unwrap_or_default());
    wait.clamp(LOOK_AT_MOST, LOOK_AT_LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_when_the_first_is_due_and_daily_and_not_all_the_time() {
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
