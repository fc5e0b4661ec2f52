//! A connection to the shim: non-blocking lines with descriptors in both directions.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use crate::protocol::{REQUEST_BYTES_MAX, Reply, Request};

/// Maximum number of descriptors per message: the three standard streams.
pub(crate) const FDS_MAX: usize = 3;

pub(crate) struct Connection {
    socket: UnixStream,
    received: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// The result of reading.
pub(crate) enum Incoming {
    /// The request is incomplete.
    Partial,
    /// A request and its descriptors.
    Request(Box<Request>, Vec<OwnedFd>),
    /// The request is malformed.
    Malformed(String),
    /// The other side closed the connection.
    Closed,
}

impl Connection {
    pub(crate) fn new(socket: UnixStream) -> std::io::Result<Connection> {
        socket.set_nonblocking(true)?;
        Ok(Connection { socket, received: Vec::new(), fds: Vec::new() })
    }

    pub(crate) fn read(&mut self) -> Incoming {
        let mut buffer = [0; 16 << 10];
        loop {
            match receive(&self.socket, &mut buffer, &mut self.fds) {
                Ok(0) => return Incoming::Closed,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(_) => return Incoming::Closed,
            }
            if self.received.len() > REQUEST_BYTES_MAX {
                return Incoming::Malformed("the request is too long".to_owned());
            }
        }
        let Some(end) = self.received.iter().position(|byte| *byte == b'\n') else { return Incoming::Partial };
        let line: Vec<u8> = self.received.drain(..=end).collect();
        match serde_json::from_slice(&line) {
            Ok(request) => Incoming::Request(Box::new(request), std::mem::take(&mut self.fds)),
            Err(error) => Incoming::Malformed(error.to_string()),
        }
    }

    /// Sends a reply; fails if the peer's buffer is full, which counts as disconnected.
    pub(crate) fn reply(&self, reply: &Reply, fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let mut line = serde_json::to_vec(reply).expect("a reply is JSON");
        line.push(b'\n');
        let sent = send(&self.socket, &line, fd.as_slice())?;
        if sent == line.len() { Ok(()) } else { Err(Errno::AGAIN) }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Receives bytes and descriptors.
pub(crate) fn receive(socket: impl AsFd, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            fds.extend(received);
        }
    }
    Ok(message.bytes)
}

/// Sends bytes and descriptors without blocking.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)
}
