//! Network namespaces: created, pinned to a file, entered.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Magic number of nsfs.
const NAMESPACE_FILE: u64 = 0x6e73_6673;

/// Creates a network namespace that is pinned to a file, so that it exists without processes. Keeps an existing one.
pub fn ensure(file: &Path) -> io::Result<()> {
    if is_namespace(file) {
        return Ok(());
    }
    // After a reboot the files may exist without their namespaces.
    File::create(file)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> io::Result<()> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(mount_bind("/proc/thread-self/ns/net", file)?)
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Unpins a namespace: the kernel deletes it with its last process. Succeeds if it does not exist.
pub fn unpin(file: &Path) -> io::Result<()> {
    if is_namespace(file) {
        unmount(file, UnmountFlags::DETACH)?;
    }
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether a namespace is pinned to the file.
pub fn is_namespace(file: &Path) -> bool {
    rustix::fs::statfs(file).is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(|kind| kind == NAMESPACE_FILE))
}

/// Moves the calling thread, and threads that it starts later, into the network namespace of a file.
pub fn enter(file: &Path) -> io::Result<()> {
    let file = File::open(file)?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Runs a closure on a new thread inside the network namespace of a file.
///
/// The thread exits afterwards, so no other work runs in the wrong namespace.
pub fn within<R: Send>(netns: &Path, work: impl FnOnce() -> R + Send) -> io::Result<R> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            enter(netns)?;
            Ok(work())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Sets a sysctl under `net` in the network namespace of the calling thread.
///
/// Succeeds if the kernel does not have the sysctl.
pub fn set_sysctl(path: &str, value: &str) -> io::Result<()> {
    match std::fs::write(Path::new("/proc/sys/net").join(path), value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
