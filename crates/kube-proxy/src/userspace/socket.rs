//! Sockets on addresses that this host may not have yet.
//!
//! External addresses move between nodes, for example those of load balancers. A socket with IP_FREEBIND costs nothing
//! while the address is elsewhere, and serves as soon as this host has the address.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use tokio::net::{TcpListener, UdpSocket};

/// Length of the listen queue, as in tokio.
const BACKLOG: i32 = 1024;

/// Listens for TCP connections.
pub(super) fn streams_at(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = open(at, SocketType::STREAM)?;
    listen(&socket, BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Binds a UDP socket.
pub(super) fn datagrams_at(at: SocketAddr) -> io::Result<UdpSocket> {
    UdpSocket::from_std(open(at, SocketType::DGRAM)?.into())
}

fn open(at: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    if kind == SocketType::STREAM {
        // Connections of an earlier run in TIME_WAIT must not block a restart.
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    match at {
        SocketAddr::V4(_) => sockopt::set_ip_freebind(&socket, true)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_freebind(&socket, true)?,
    }
    bind(&socket, &at)?;
    Ok(socket)
}
