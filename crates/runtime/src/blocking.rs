//! File work off the async threads: a disk, or a container that writes to it, may keep it waiting.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs file work that borrows, on this thread, while another thread takes over the tasks of this one.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // There is nobody to take over: a test, or no executor at all.
        _ => work(),
    }
}
