//! Work inside another network namespace.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Runs something on a thread of its own that is inside the network namespace of a file.
///
/// The thread ends with it: no other work ever runs in the wrong namespace.
pub fn within<R: Send>(netns: &Path, work: impl FnOnce() -> R + Send) -> io::Result<R> {
    let file = File::open(netns)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
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
