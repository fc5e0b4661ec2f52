//! Events on their way to a task that sends them in batches.

use std::time::Duration;

use ::audit::Event;
use ::audit::batch::{Batcher, Config};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Where events are put.
pub struct Queue(mpsc::Sender<Event>);

/// What takes them out.
pub struct Waiting {
    events: mpsc::Receiver<Event>,
    config: Config,
    closing: watch::Receiver<bool>,
}

/// A queue with room for as many events as the configuration says, which takes no more once it is closing.
pub fn new(config: Config, closing: watch::Receiver<bool>) -> (Queue, Waiting) {
    let (sender, events) = mpsc::channel(config.buffer_size.max(1));
    (Queue(sender), Waiting { events, config, closing })
}

impl Queue {
    /// Puts an event in; false if there is no room, and the event is lost.
    pub fn offer(&self, event: Event) -> bool {
        self.0.try_send(event).is_ok()
    }
}

impl Waiting {
    /// Sends batches one after the other until no more events can come.
    pub async fn run<F: Future<Output = ()> + Send>(mut self, mut send: impl FnMut(Vec<Event>) -> F + Send) {
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
                    // The channel is the bound; the batcher never has more than a batch that waits for others.
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

/// How long to wait before the next attempt: half as long again each time.
pub fn next_backoff(last: Duration) -> Duration {
    last + last / 2
}
