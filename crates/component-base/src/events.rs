//! Event recorder: sends Events and limits repetitions.

mod correlate;

use apimachinery::{Key, Value};
use client::{Client, Error, Patch, Target, WriteOptions};
use controller::{EventType, Regarding, kinds};
use tokio::sync::mpsc;

use crate::clock;
use correlate::{CorrelationResult, Correlator, Occurrence};

/// Maximum queued events; further ones are dropped.
const WAITING_MAX: usize = 1000;

/// Accepts events without blocking.
#[derive(Clone)]
pub struct Recorder {
    occurrences: mpsc::Sender<Occurrence>,
}

impl Recorder {
    /// Returns a recorder for a component, and the future that sends its events.
    pub fn new(client: Client, component: impl Into<String>) -> (Self, impl Future<Output = ()> + Send) {
        let (occurrences, waiting) = mpsc::channel(WAITING_MAX);
        (Self { occurrences }, send_all(client, Correlator::new(component.into()), waiting))
    }

    /// Records an event about an object.
    pub fn record(&self, regarding: &Regarding, kind: EventType, reason: &str, message: &str) {
        let occurrence = Occurrence {
            regarding: regarding.clone(),
            kind,
            reason: reason.to_owned(),
            message: message.to_owned(),
            at: clock::now(),
        };
        if self.occurrences.try_send(occurrence).is_err() {
            tracing::debug!(regarding = %regarding.key, reason, "dropped an event: the queue is full");
        }
    }
}

async fn send_all(client: Client, mut correlator: Correlator, mut waiting: mpsc::Receiver<Occurrence>) {
    while let Some(occurrence) = waiting.recv().await {
        let verdict = correlator.correlate(&occurrence);
        if let Err(error) = send(&client, &mut correlator, verdict).await {
            tracing::debug!(error = %error, reason = occurrence.reason, "failed to send an event");
        }
    }
}

async fn send(client: &Client, correlator: &mut Correlator, verdict: CorrelationResult) -> Result<(), Error> {
    let (event, patch) = match verdict {
        CorrelationResult::Drop => return Ok(()),
        CorrelationResult::Create(event) => (event, None),
        CorrelationResult::Patch { event, patch } => (event, Some(patch)),
    };
    if let Some(patch) = patch {
        let target = Target::object(&kinds::EVENTS, &Key::of(&event));
        match client.patch(&target, &Patch::Merge(patch), &WriteOptions::default()).await {
            // The event has expired and is created again.
            Err(error) if error.is_not_found() => {}
            other => return other.map(drop),
        }
    }
    create(client, &event).await.inspect_err(|error| {
        // A terminating namespace rejects events. A rejected event cannot be incremented later.
        if error.status().is_some() {
            correlator.remove_event(&event);
        }
    })
}

async fn create(client: &Client, event: &Value) -> Result<(), Error> {
    let target = Target::within(&kinds::EVENTS, Key::of(event).namespace);
    client.create(&target, event, &WriteOptions::default()).await.map(drop)
}
