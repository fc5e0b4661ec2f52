//! What the kernel thinks of its own clock.

use std::io;

/// How true the clock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockState {
    /// Somebody keeps it true.
    pub is_synchronised: bool,
    /// By how much it may be wrong.
    pub error_micros: u64,
}

/// Asks the kernel; nothing is changed.
pub fn clock_state() -> io::Result<ClockState> {
    // SAFETY: `timex` is plain data for which zeroes are a value; no mode is set, so that it is only filled.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is whole and lives until the call returns.
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
    fn the_kernel_says_how_true_its_clock_is() {
        assert!(clock_state().is_ok());
    }
}
