//! NTP state of the kernel clock.

use std::io;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockState {
    /// Whether a time daemon keeps the clock synchronized.
    pub is_synchronised: bool,
    /// The kernel's estimate of the maximum error.
    pub error_micros: u64,
}

/// Reads the state with `adjtimex`; changes nothing.
pub fn clock_state() -> io::Result<ClockState> {
    // SAFETY: `timex` is plain data for which all zeroes are valid; no mode is set, so the kernel only fills it.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is complete and lives until the call returns.
    let state = unsafe { libc::adjtimex(std::ptr::from_mut(&mut timex)) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    let is_synchronised = state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0;
    Ok(ClockState { is_synchronised, error_micros: u64::try_from(timex.maxerror).unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_state_is_readable() {
        assert!(clock_state().is_ok());
    }
}
