//! Private network and mount namespaces for a thread.

use std::io;

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Runs `work` on a thread with new network and mount namespaces. Both end with the thread and are invisible to other
/// threads.
pub fn apart<R: Send>(work: impl FnOnce() -> R + Send) -> io::Result<R> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // SAFETY: only the network and mount namespaces become private to this thread, and the thread ends with the
            // work. Memory and open files, which other code relies on being shared, are not unshared.
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
    fn mounts_in_the_private_namespace_are_invisible_outside() {
        test_requirements::root();
        let here = std::fs::read_link("/proc/thread-self/ns/mnt").unwrap();
        let there = apart(|| std::fs::read_link("/proc/thread-self/ns/mnt").unwrap()).unwrap();
        assert_ne!(here, there);
        assert_eq!(std::fs::read_link("/proc/thread-self/ns/mnt").unwrap(), here);
    }
}
