//! Detection of a shutdown or reboot of the host.

use std::process::Command;

use anyhow::{Context, Result};

/// Whether systemd shuts the host down. OpenRC calls its services with a variable instead, which their scripts read.
pub(super) fn is_in_progress() -> Result<bool> {
    let output = Command::new("systemctl").arg("is-system-running").output();
    let output = output.context("failed to run systemctl")?;
    Ok(is_stopping(&output.stdout))
}

/// Whether `systemctl is-system-running` printed the state of a host that shuts down. It fails in all states but
/// `running`.
fn is_stopping(state: &[u8]) -> bool {
    state.trim_ascii() == b"stopping"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_state_stopping_is_a_shutdown() {
        assert!(is_stopping(b"stopping\n"));
        for state in ["running\n", "degraded\n", "starting\n", "offline\n", ""] {
            assert!(!is_stopping(state.as_bytes()), "{state:?}");
        }
    }
}
