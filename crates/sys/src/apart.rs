//! Work that the rest of the machine does not see.

use std::io;

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Runs something on a thread with a network and mounts of its own. Both end with the thread, and nobody else sees them.
pub fn apart<R: Send>(work: impl FnOnce() -> R + Send) -> io::Result<R> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // SAFETY: only the network and the mounts are made this thread's own, and the thread ends with the work: neither memory
            // nor open files, which other code relies on being shared, are touched.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET | UnshareFlags::NEWNS) }?;
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
            Ok(work())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_apart_is_not_seen() {
        let here = std::fs::read_link("/proc/thread-self/ns/mnt").unwrap();
        match apart(|| std::fs::read_link("/proc/thread-self/ns/mnt").unwrap()) {
            Ok(there) => assert_ne!(here, there),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => println!("skipped: this needs root"),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(std::fs::read_link("/proc/thread-self/ns/mnt").unwrap(), here);
    }
}
