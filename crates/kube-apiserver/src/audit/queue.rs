//! Audit event queue: buffers events for a task that sends them in batches.

use std::time::Duration;

use ::audit::Event;
use ::audit::batch::{Batcher, Config};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// The sending side of the queue.
pub(super) struct Queue(mpsc::Sender<Event>);

/// The receiving side of the queue, which batches events.
pub(super) struct Waiting {
    events: mpsc::Receiver<Event>,
    config: Config,
    closing: watch::Receiver<bool>,
}

/// Creates a queue with the configured buffer size. The queue closes when `closing` becomes true.
pub(super) fn new(config: Config, closing: watch::Receiver<bool>) -> (Queue, Waiting) {
    let (sender, events) = mpsc::channel(config.buffer_size.max(1));
    (Queue(sender), Waiting { events, config, closing })
}

impl Queue {
    /// Adds an event. Returns false if the queue is full; the event is lost.
    pub(super) fn offer(&self, event: Event) -> bool {
        self.0.try_send(event).is_ok()
    }
}

impl Waiting {
    /// Sends batches sequentially until the queue is closed and empty.
    pub(super) async fn run<F: Future<Output = ()> + Send>(mut self, mut send: impl FnMut(Vec<Event>) -> F + Send) {
        let origin = Instant::now();
        let mut batcher = Batcher::new(self.config);
        let (mut is_open, mut is_closing) = (true, false);
        while is_open || !batcher.is_empty() {
            if let Some(batch) = batcher.take(origin.elapsed()) {
                send(batch).await;
                continue;
            }
            let due = batcher.wake_at().map(|at| origin + at);
            tokio::select! {
                event = self.events.recv(), if is_open => match event {
                    // The channel bounds the events; the batcher never holds more than one incomplete batch.
                    Some(event) => drop(batcher.offer(event, origin.elapsed())),
                    None => {
                        is_open = false;
                        batcher.close();
                    }
                },
                _ = self.closing.wait_for(|closing| *closing), if !is_closing => {
                    is_closing = true;
                    self.events.close();
                }
                () = tokio::time::sleep_until(due.unwrap_or(origin)), if due.is_some() => {}
            }
        }
    }
}

/// Returns the delay before the next attempt: 1.5 times the last one.
pub(super) fn next_backoff(last: Duration) -> Duration {
    last + last / 2
}
