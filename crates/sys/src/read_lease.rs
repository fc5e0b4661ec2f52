//! Read leases: whether a file is open for writing, and writers that wait for a reader.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The result of [`lease_for_reading`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadLease {
    /// No process has the file open for writing. One that opens it waits until this file is closed, for at most 45
    /// seconds (`fs.lease-break-time`).
    Granted,
    /// A process has the file open for writing.
    BeingWritten,
    /// The filesystem, such as NFS, or the permissions of this process do not allow leases.
    Unsupported,
}

/// `F_SETSIG` of `fcntl.h`, which the libc crate lacks.
const F_SETSIG: libc::c_int = 10;

/// Takes a read lease on a file that is open for reading only. The lease ends when the file is closed.
pub fn lease_for_reading(file: &File) -> io::Result<ReadLease> {
    let fd = file.as_raw_fd();
    // A writer that waits is announced by a signal. The default, SIGIO, terminates the process; SIGURG is ignored.
    // SAFETY: the descriptor is open for the duration of the call, and the command takes an integer.
    if unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above. The kernel ends the lease with the open file.
    if unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) } == 0 {
        return Ok(ReadLease::Granted);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Ok(ReadLease::BeingWritten),
        Some(libc::EINVAL | libc::EACCES | libc::EPERM | libc::EOPNOTSUPP | libc::ENOLCK) => Ok(ReadLease::Unsupported),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn file_is_leased_only_without_writers_and_writers_wait_for_readers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut writer = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert_eq!(lease_for_reading(&reader).unwrap(), ReadLease::BeingWritten);
        writer.write_all(b"whole").unwrap();
        drop(writer);
        assert_eq!(lease_for_reading(&reader).unwrap(), ReadLease::Granted);
        let (opened, is_open) = mpsc::channel();
        let truncating = {
            let path = path.clone();
            std::thread::spawn(move || {
                opened.send(()).unwrap();
                drop(File::create(path).unwrap());
            })
        };
        is_open.recv().unwrap();
        // Whether the writer already waits or not, it cannot truncate the file before the reader closes it.
        assert_eq!(io::read_to_string(&reader).unwrap(), "whole");
        drop(reader);
        truncating.join().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }
}
