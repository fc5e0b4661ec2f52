//! Network namespaces: made, kept by a file, entered.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// What the kernel says of the file of a namespace.
const NAMESPACE_FILE: u64 = 0x6e73_6673;

/// Makes a network namespace that a file keeps, also when nobody is inside. One that is there already stays.
pub fn ensure(file: &Path) -> io::Result<()> {
    if is_namespace(file) {
        return Ok(());
    }
    // The namespaces of a machine that was started anew are gone, their files are not.
    File::create(file)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> io::Result<()> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(mount_bind("/proc/thread-self/ns/net", file)?)
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Lets go of a namespace: it ends with the last process inside. One that is not there is no failure.
pub fn forget(file: &Path) -> io::Result<()> {
    if is_namespace(file) {
        unmount(file, UnmountFlags::DETACH)?;
    }
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether a file keeps a namespace now.
pub fn is_namespace(file: &Path) -> bool {
    rustix::fs::statfs(file).is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(|kind| kind == NAMESPACE_FILE))
}

/// Moves the calling thread, and those that it starts from now on, into the network namespace of a file.
pub fn enter(file: &Path) -> io::Result<()> {
    let file = File::open(file)?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Runs something on a thread of its own that is inside the network namespace of a file.
///
/// The thread ends with it: no other work ever runs in the wrong namespace.
pub fn within<R: Send>(netns: &Path, work: impl FnOnce() -> R + Send) -> io::Result<R> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            enter(netns)?;
            Ok(work())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Sets a switch of the kernel for the network namespace of the calling thread.
///
/// One that this kernel does not have is no failure: then there is nothing to set.
pub fn set_sysctl(path: &str, value: &str) -> io::Result<()> {
    match std::fs::write(Path::new("/proc/sys/net").join(path), value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
