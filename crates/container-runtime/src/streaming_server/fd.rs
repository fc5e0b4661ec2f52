//! Asynchronous reads and writes of pipes and terminals.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(super) struct Fd(AsyncFd<OwnedFd>);

impl Fd {
    /// Registers a terminal.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Fd> {
        Fd::register(fd, Interest::READABLE | Interest::WRITABLE)
    }

    /// Registers the read end of a pipe, which cannot wait for writability.
    pub(super) fn reader(fd: OwnedFd) -> io::Result<Fd> {
        Fd::register(fd, Interest::READABLE)
    }

    /// Registers the write end of a pipe.
    pub(super) fn writer(fd: OwnedFd) -> io::Result<Fd> {
        Fd::register(fd, Interest::WRITABLE)
    }

    #[expect(
        deprecated,
        reason = "an owned descriptor cannot be reused, unlike the case that the deprecation is about"
    )]
    fn register(fd: OwnedFd, interest: Interest) -> io::Result<Fd> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Fd(AsyncFd::with_interest(fd, interest)?))
    }

    /// Reads bytes. Returns zero at the end, and for a terminal whose other side is closed (EIO).
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            match rustix::io::read(&self.0, &mut *buffer) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(Errno::IO) => return Ok(0),
                done => return Ok(done?),
            }
        }
    }

    /// Writes all bytes.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut ready = self.0.writable().await?;
            match rustix::io::write(&self.0, bytes) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                done => bytes = &bytes[done?..],
            }
        }
        Ok(())
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
