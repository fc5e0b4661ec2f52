//! Blocking file I/O off the async threads: a disk, or a container that writes to it, can delay it.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs blocking file I/O on this thread, so that `work` can borrow. Another worker thread takes over this thread's
/// tasks.
pub(crate) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // No other worker thread can take over: a single-threaded test, or no async runtime.
        _ => work(),
    }
}
