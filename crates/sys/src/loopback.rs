//! The loopback interface of a new network namespace.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Brings up `lo` in the network namespace of the calling thread.
pub fn loopback_up() -> io::Result<()> {
    // SAFETY: a plain system call without pointers; its result is checked before it becomes an owned descriptor.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: `ifreq` is plain data for which all zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    let up = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).expect("the flags are 16 bits wide");
    request.ifr_ifru.ifru_flags = up;
    // SAFETY: the request is a complete `ifreq` that lives until the call returns, as SIOCSIFFLAGS requires.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, std::ptr::from_mut(&mut request)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
