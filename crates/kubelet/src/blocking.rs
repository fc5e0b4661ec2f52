//! File work off the async threads: a disk, a network filesystem or a container may keep it waiting.

use std::io;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// How long a file that a container controls is waited for.
const DEADLINE: Duration = Duration::from_secs(5);
/// How many threads may wait for such files at once. A thread that a filesystem never answers keeps its place.
const WAITING_MAX: usize = 32;

static WAITING: Semaphore = Semaphore::const_new(WAITING_MAX);

/// Runs file work on a thread of its own and waits for it, however long it takes.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Runs work on files that a container controls, and gives up on it after a few seconds.
pub async fn within_deadline<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    within(DEADLINE, work).await
}

async fn within<T: Send + 'static>(
    deadline: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the filesystem does not answer");
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

/// Runs file work that borrows, on this thread, while another thread takes over the tasks of this one.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // There is nobody to take over: a test, or no executor at all.
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_never_ends_is_given_up() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let given_up = within(Duration::from_millis(20), move || Ok(ended.recv().is_ok())).await;
        assert_eq!(given_up.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(end);
        assert_eq!(within_deadline(|| Ok(1)).await.unwrap(), 1);
    }
}
