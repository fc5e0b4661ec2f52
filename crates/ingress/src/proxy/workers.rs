//! Worker threads: each serves its connections on its own runtime, so that no connection waits for another thread and
//! all connections of a thread take turns.
//!
//! A runtime with several threads keeps at most 256 ready tasks in the queue of a thread and serves the others rarely: with
//! a thousand busy connections, some waited ten times as long as the others.

use std::cell::Cell;
use std::io;
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// The threads. They end when this is dropped.
pub(super) struct Workers {
    threads: Vec<(Handle, JoinHandle<()>)>,
    next: AtomicUsize,
    stop: CancellationToken,
}

/// Returns the number of threads: the number of CPUs at the first call.
pub(super) fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get))
}

/// Returns the number of the current thread, 0 for other threads.
pub(super) fn current() -> usize {
    NUMBER.get()
}

impl Workers {
    /// Starts the threads.
    pub(super) fn start() -> io::Result<Workers> {
        let stop = CancellationToken::new();
        let start = |number| -> io::Result<(Handle, JoinHandle<()>)> {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (handle, stop) = (runtime.handle().clone(), stop.clone());
            let thread = std::thread::Builder::new().name(format!("ingress-{number}")).spawn(move || {
                NUMBER.set(number);
                runtime.block_on(stop.cancelled());
                // Dropping it would wait for blocking calls.
                runtime.shutdown_background();
            })?;
            Ok((handle, thread))
        };
        let threads = (0..count()).map(start).collect::<io::Result<Vec<_>>>();
        let threads = threads.inspect_err(|_| stop.cancel())?;
        Ok(Workers { threads, next: AtomicUsize::new(0), stop })
    }

    /// Runs a future on the next thread in turn. It is aborted when the result is dropped.
    pub(super) fn spawn<F>(&self, future: F) -> AbortOnDropHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len();
        AbortOnDropHandle::new(self.threads[turn].0.spawn(future.in_current_span()))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.cancel();
        // The threads are not joined, because the thread that drops this may be one of them.
        self.threads.clear();
    }
}
