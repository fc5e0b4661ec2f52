//! Pipes and terminals, read and written without blocking a thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor of ours.
pub struct Fd(AsyncFd<OwnedFd>);

impl Fd {
    /// A terminal.
    pub fn new(fd: OwnedFd) -> io::Result<Fd> {
        Fd::register(fd, Interest::READABLE | Interest::WRITABLE)
    }

    /// A pipe's reading end: the other direction cannot be waited for.
    pub fn reader(fd: OwnedFd) -> io::Result<Fd> {
        Fd::register(fd, Interest::READABLE)
    }

    /// A pipe's writing end.
    pub fn writer(fd: OwnedFd) -> io::Result<Fd> {
        Fd::register(fd, Interest::WRITABLE)
    }

    #[expect(deprecated, reason = "an owned descriptor, unlike what the warning is about, stays the same one")]
    fn register(fd: OwnedFd, interest: Interest) -> io::Result<Fd> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Fd(AsyncFd::with_interest(fd, interest)?))
    }

    /// Reads something; nothing is the end, also for a terminal whose other side has gone.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
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

    /// Writes everything.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
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
