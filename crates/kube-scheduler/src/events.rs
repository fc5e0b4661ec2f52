//! Event recorder for `events.k8s.io`: a repeated event becomes a series instead of a new event.
//!
//! The first repetition is written immediately, later ones are only counted. A series that has ended is written once
//! more with its count.

use std::collections::BTreeMap;
use std::time::Duration;

use api::resources::versioned::EVENTS_K8S_IO;
use apimachinery::{Key, Str, Value, value};
use client::{Client, Error, Patch, Target, WriteOptions};
use component_base::clock;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument;

/// Maximum queued events; more are dropped.
const WAITING_MAX: usize = 4096;
/// Maximum tracked events; beyond that a repetition becomes a new event.
const REMEMBERED_MAX: usize = 16_384;
/// Maximum concurrent requests.
const REQUESTS_MAX: usize = 16;
/// Reason of the event for a bound pod.
pub const SCHEDULED: &str = "Scheduled";
/// A series ends after this time without repetition.
const SERIES_ENDS: Duration = Duration::from_secs(6 * 60);

/// An event about a pod.
#[derive(Clone, Debug)]
pub struct Occurrence {
    /// Reference to the pod.
    pub regarding: Value,
    /// Reference to the pod that caused the event, if any.
    pub related: Option<Value>,
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    pub reason: &'static str,
    /// Action that was taken or attempted.
    pub action: &'static str,
    pub note: String,
    /// `reportingController`: the scheduler's name.
    pub controller: Str,
}

/// Queues events without blocking.
#[derive(Clone)]
pub struct Recorder {
    occurrences: mpsc::Sender<Occurrence>,
}

struct Sender {
    client: Client,
    instance: String,
    recorded_events: BTreeMap<String, RecordedEvent>,
    /// Time of the next check for ended series.
    sweep_at: Option<Instant>,
    requests: JoinSet<()>,
}

struct RecordedEvent {
    event: Value,
    last: Instant,
    /// Number of occurrences.
    count: i64,
    /// Whether the server has the current count.
    written: bool,
}

impl Recorder {
    /// Creates a recorder for this host, and the future that sends its events while polled.
    pub fn new(client: Client, host: &str) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (occurrences, waiting) = mpsc::channel(WAITING_MAX);
        let (instance, requests) = (host.to_owned(), JoinSet::new());
        let sender = Sender { client, instance, recorded_events: BTreeMap::new(), sweep_at: None, requests };
        (Self { occurrences }, sender.run(waiting))
    }

    /// Queues an event; drops it if the queue is full.
    pub fn record(&self, occurrence: Occurrence) {
        if let Err(error) = self.occurrences.try_send(occurrence) {
            tracing::debug!(%error, "dropped an event");
        }
    }
}

/// Returns the ObjectReference of a pod.
pub fn reference(pod: &Value) -> Value {
    let meta = apimachinery::meta::Meta::of(pod);
    value!({
        "apiVersion": "v1", "kind": "Pod", "namespace": (meta.namespace()), "name": (meta.name()), "uid": (meta.uid()),
        "resourceVersion": (meta.resource_version()),
    })
}

impl Sender {
    async fn run(mut self, mut waiting: mpsc::Receiver<Occurrence>) {
        loop {
            tokio::select! {
                occurrence = waiting.recv() => match occurrence {
                    Some(occurrence) => self.record_occurrence(&occurrence).await,
                    None => break,
                },
                () = until(self.sweep_at) => self.sweep().await,
            }
        }
        while self.requests.join_next().await.is_some() {}
    }

    async fn record_occurrence(&mut self, occurrence: &Occurrence) {
        let key = key(occurrence);
        let now = clock::now();
        let (event, again) = match self.recorded_events.get_mut(&key) {
            Some(recorded) => {
                (recorded.last, recorded.count, recorded.written) =
                    (Instant::now(), recorded.count + 1, recorded.count == 1);
                if recorded.count > 2 {
                    return;
                }
                (recorded.event.clone(), Some(patch(recorded.count, &now.micro().to_string())))
            }
            None => {
                let event = event(occurrence, &self.instance, now);
                // A pod is bound once, so this event, the most frequent one, has no repetitions to track.
                if occurrence.reason != SCHEDULED && self.recorded_events.len() < REMEMBERED_MAX {
                    let recorded =
                        RecordedEvent { event: event.clone(), last: Instant::now(), count: 1, written: true };
                    self.sweep_at.get_or_insert(recorded.last + SERIES_ENDS);
                    self.recorded_events.insert(key, recorded);
                }
                (event, None)
            }
        };
        self.send(event, again).await;
    }

    /// Ends series without recent repetitions and writes those whose count the server does not have.
    async fn sweep(&mut self) {
        let now = Instant::now();
        let expired_series: Vec<_> = self
            .recorded_events
            .extract_if(.., |_, recorded| recorded.last + SERIES_ENDS <= now)
            .map(|(_, recorded)| recorded)
            .collect();
        self.sweep_at =
            self.recorded_events.values().map(|recorded| recorded.last).min().map(|oldest| oldest + SERIES_ENDS);
        for recorded in expired_series.into_iter().filter(|recorded| !recorded.written) {
            let at = clock::now().micro().to_string();
            self.send(recorded.event, Some(patch(recorded.count, &at))).await;
        }
    }

    async fn send(&mut self, event: Value, again: Option<Value>) {
        // An update must not overtake the creation of its event.
        let most = if again.is_some() { 0 } else { REQUESTS_MAX - 1 };
        while self.requests.len() > most {
            self.requests.join_next().await;
        }
        let client = self.client.clone();
        let task = async move {
            if let Err(error) = write(&client, &event, again).await {
                tracing::debug!(%error, "failed to write an event");
            }
        };
        self.requests.spawn(task.in_current_span());
    }
}

async fn write(client: &Client, event: &Value, again: Option<Value>) -> Result<(), Error> {
    let key = Key::of(event);
    if let Some(patch) = again {
        let target = Target::object(&EVENTS_K8S_IO, &key);
        match client.patch(&target, &Patch::Merge(patch), &WriteOptions::default()).await {
            // The event has expired on the server and is created again.
            Err(error) if error.is_not_found() => {}
            other => return other.map(drop),
        }
    }
    client.create(&Target::within(&EVENTS_K8S_IO, key.namespace), event, &WriteOptions::default()).await.map(drop)
}

fn event(it: &Occurrence, instance: &str, now: apimachinery::time::Time) -> Value {
    let text = |field: &str| it.regarding.text_at(&[field]);
    let namespace = if text("namespace").is_empty() { "default" } else { text("namespace") };
    // As upstream names events: unique by nanoseconds.
    let nanos = i128::from(now.unix_seconds()) * 1_000_000_000 + i128::from(now.nanos());
    let name = format!("{}.{nanos:x}", text("name"));
    let (controller, at) = (it.controller.as_str(), now.micro().to_string());
    let mut event = value!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"namespace": namespace, "name": name},
        "eventTime": at, "reportingController": controller, "reportingInstance": (format!("{controller}-{instance}")),
        "type": (it.kind), "reason": (it.reason), "action": (it.action), "note": (it.note.as_str()),
        "regarding": (it.regarding.clone()),
    });
    if let (Some(related), Some(fields)) = (&it.related, event.as_object_mut()) {
        fields.insert("related", related.clone());
    }
    event
}

fn patch(count: i64, at: &str) -> Value {
    value!({"series": {"count": count, "lastObservedTime": at}})
}

/// Returns the key of a series, which ignores the note.
fn key(it: &Occurrence) -> String {
    let uid = |reference: &Value| reference.text_at(&["uid"]).to_owned();
    let related = it.related.as_ref().map(uid).unwrap_or_default();
    format!("{}\0{}\0{}\0{}\0{}\0{related}", it.controller, it.kind, it.reason, it.action, uid(&it.regarding))
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_has_regarding_reason_action_and_note() {
        let pod = value!({"metadata": {"namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "7"}});
        let occurrence = Occurrence {
            regarding: reference(&pod),
            related: None,
            kind: "Normal",
            reason: "Scheduled",
            action: "Binding",
            note: "Successfully assigned ns/p to n".to_owned(),
            controller: "default-scheduler".into(),
        };
        let event = event(&occurrence, "host", apimachinery::time::Time::from_unix(1, 5));
        assert_eq!(event.str_at(&["metadata", "name"]), Some("p.3b9aca05"));
        assert_eq!(event.str_at(&["reportingInstance"]), Some("default-scheduler-host"));
        assert_eq!(event.str_at(&["eventTime"]), Some("1970-01-01T00:00:01.000000Z"));
        assert_eq!(event.str_at(&["regarding", "resourceVersion"]), Some("7"));
        let other = Occurrence { note: "other words".to_owned(), ..occurrence.clone() };
        assert_eq!(key(&occurrence), key(&other));
        let other = Occurrence { reason: "FailedScheduling", ..occurrence.clone() };
        assert_ne!(key(&occurrence), key(&other));
    }
}
