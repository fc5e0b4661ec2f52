//! Blocking file I/O off the async threads: a disk, a network filesystem or a container can delay it.

use std::io;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// Timeout for access to files that a container controls.
const DEADLINE: Duration = Duration::from_secs(5);
/// Maximum concurrent accesses with a deadline. A thread whose filesystem never responds keeps its permit.
const WAITING_MAX: usize = 32;

static WAITING: Semaphore = Semaphore::const_new(WAITING_MAX);

/// Runs blocking file I/O on the blocking thread pool and waits for it without a deadline.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Runs blocking access to files that a container controls; fails after a deadline of five seconds.
pub(crate) async fn within_deadline<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    within(DEADLINE, work).await
}

async fn within<T: Send + 'static>(
    deadline: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the filesystem does not respond");
    let work = async {
        let permit = WAITING.acquire().await.expect("the semaphore is never closed");
        run(move || {
            let _permit = permit;
            work()
        })
        .await
    };
    tokio::time::timeout(deadline, work).await.map_err(late)?
}

/// Runs blocking file I/O on this thread, so that `work` can borrow. Another worker thread takes over this thread's
/// tasks.
pub(crate) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // No other worker thread can take over: a single-threaded test, or no async runtime.
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn blocking_work_fails_after_the_deadline() {
        let (end, receiver) = std::sync::mpsc::channel::<()>();
        let given_up = within(Duration::from_millis(20), move || Ok(receiver.recv().is_ok())).await;
        assert_eq!(given_up.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(end);
        assert_eq!(within_deadline(|| Ok(1)).await.unwrap(), 1);
    }
}
