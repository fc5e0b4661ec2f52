//! Raw Ethernet frames, sent without an address of this host.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Sends one frame on a link of the calling thread's network namespace. `protocol` is an EtherType, and `payload` the
/// data after the Ethernet header.
pub fn send_frame(link: u32, protocol: u16, to: [u8; 6], payload: &[u8]) -> io::Result<()> {
    let failed = |result: libc::c_int| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    // SAFETY: a system call without pointers.
    let socket = failed(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor was just created and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let mut address = [0_u8; 8];
    address[..to.len()].copy_from_slice(&to);
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: protocol.to_be(),
        sll_ifindex: i32::try_from(link).map_err(io::Error::other)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: address,
    };
    // SAFETY: both pointers refer to values that live until the call returns, with their lengths.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            payload.as_ptr().cast(),
            payload.len(),
            0,
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
