//! Sockets at addresses that this machine may not have yet.
//!
//! Addresses from outside come and go: a load balancer's is lent to one node, then to another. A socket that is bound freely costs
//! nothing while the address is elsewhere, and serves from the moment at which it is here.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use tokio::net::{TcpListener, UdpSocket};

/// How many connections wait to be taken, as tokio has it.
const BACKLOG: i32 = 1024;

/// Takes connections at an address.
pub fn streams_at(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = open(at, SocketType::STREAM)?;
    listen(&socket, BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Takes datagrams at an address.
pub fn datagrams_at(at: SocketAddr) -> io::Result<UdpSocket> {
    UdpSocket::from_std(open(at, SocketType::DGRAM)?.into())
}

fn open(at: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    if kind == SocketType::STREAM {
        // Connections of an earlier run that are not quite over do not hold up the next.
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    match at {
        SocketAddr::V4(_) => sockopt::set_ip_freebind(&socket, true)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_freebind(&socket, true)?,
    }
    bind(&socket, &at)?;
    Ok(socket)
}
