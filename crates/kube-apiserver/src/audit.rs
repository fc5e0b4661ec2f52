//! Audit backends: log file, standard output and webhook.

mod queue;
mod webhook;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::audit::batch;
use ::audit::log::rotation::Rotation;
use ::audit::log::{Format, line};
use ::audit::options::Mode;
use ::audit::truncate::{Limits, cut};
use ::audit::{Attributes, AuditDecision, Event, Level, Policy, User};
use component_base::LogFile;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::metrics::Metrics;
use queue::Queue;
pub use webhook::Webhook;

/// Audit policy and backends, from flags.
#[derive(Default)]
pub struct Config {
    /// The parsed `--audit-policy-file`. Without a policy nothing is audited.
    pub policy: Option<Policy>,
    /// `--audit-log-*`
    pub log: Option<LogConfig>,
    /// `--audit-webhook-*`
    pub webhook: Option<WebhookConfig>,
}

/// The log backend.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// `-` is standard output.
    pub path: PathBuf,
    pub format: Format,
    pub rotation: Rotation,
    /// Whether requests wait until their events are written.
    pub mode: Mode,
    /// Batching settings of the batch mode.
    pub batch: batch::Config,
    /// Size limits of events, if truncation is enabled.
    pub limits: Option<Limits>,
}

/// The webhook backend.
pub struct WebhookConfig {
    pub webhook: Webhook,
    /// The mode: `batch`, `blocking` or `blocking-strict`.
    pub mode: Mode,
    pub batch: batch::Config,
    /// Size limits of events, if truncation is enabled.
    pub limits: Option<Limits>,
    /// Delay before the first retry.
    pub initial_backoff: Duration,
}

/// The audit policy and backends of a server.
pub struct Audit {
    policy: Option<Policy>,
    sinks: Vec<Sink>,
    metrics: Arc<Metrics>,
}

/// The tasks of the asynchronous backends. Dropping the value aborts them.
#[derive(Default)]
pub struct Carriers {
    tasks: JoinSet<()>,
    closing: watch::Sender<bool>,
}

impl Carriers {
    /// Waits until all queued events are delivered. No event may be written afterwards.
    pub async fn finish(mut self) {
        self.closing.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// A backend in blocking-strict mode could not write an event; the request must be rejected.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("failed to store audit event")]
pub struct WriteError;

struct Sink {
    name: &'static str,
    mode: Mode,
    limits: Option<Limits>,
    to: Destination,
}

enum Destination {
    /// Events are written synchronously.
    Log(Format, Mutex<LogFile>),
    /// Events are queued for a task.
    Queue(Queue),
}

impl Audit {
    /// Opens the backends and starts their tasks.
    pub fn start(config: Config, metrics: Arc<Metrics>) -> (Self, Carriers) {
        let (mut sinks, mut carriers) = (Vec::new(), Carriers::default());
        if let Some(log) = config.log {
            sinks.push(log_sink(&log, &metrics, &mut carriers));
        }
        if let Some(webhook) = config.webhook {
            sinks.push(webhook_sink(webhook, &metrics, &mut carriers));
        }
        if config.policy.is_none() && !sinks.is_empty() {
            tracing::warn!("audit backends are configured without --audit-policy-file; no events are recorded");
        }
        (Self { policy: config.policy, sinks, metrics }, carriers)
    }

    /// Whether a policy and at least one backend are configured.
    pub fn is_on(&self) -> bool {
        self.policy.is_some() && !self.sinks.is_empty()
    }

    /// Evaluates the policy for a request. Returns `None` if the level is `None`.
    pub fn verdict(&self, attributes: &Attributes<'_>) -> Option<AuditDecision> {
        Some(self.policy.as_ref()?.evaluate(attributes)).filter(|verdict| verdict.level != Level::None)
    }

    /// Writes an event. Failures are only counted.
    pub fn write(&self, event: &Event) {
        let _ = self.send(event);
    }

    /// Writes the RequestReceived event. Fails if the request must be rejected because the event was not written.
    pub fn write_first(&self, event: &Event) -> Result<(), WriteError> {
        self.send(event).inspect_err(|_| self.metrics.audit_rejected.with(&[]).add(1))
    }

    fn send(&self, event: &Event) -> Result<(), WriteError> {
        self.metrics.audit_events.with(&[]).add(1);
        let mut result = Ok(());
        for sink in &self.sinks {
            if !sink.send(event.clone()) {
                self.metrics.audit_errors.with(&[sink.name]).add(1);
                if sink.mode == Mode::BlockingStrict {
                    result = Err(WriteError);
                }
            }
        }
        result
    }
}

impl Sink {
    fn send(&self, event: Event) -> bool {
        match &self.to {
            Destination::Queue(queue) => queue.offer(event),
            Destination::Log(format, file) => {
                let events = limited(vec![event], self.limits);
                let mut file = file.lock().expect("no holder panics");
                let written = events.iter().try_for_each(|event| file.append_line(&line(event, *format)));
                written.inspect_err(|error| tracing::error!(%error, "failed to write an audit event")).is_ok()
            }
        }
    }
}

fn log_sink(config: &LogConfig, metrics: &Arc<Metrics>, carriers: &mut Carriers) -> Sink {
    let mut file = LogFile::new(&config.path, config.rotation);
    let format = config.format;
    let to = if config.mode == Mode::Batch {
        let limits = config.limits;
        let (queue, waiting) = queue::new(config.batch, carriers.closing.subscribe());
        let metrics = metrics.clone();
        let writing = waiting.run(move |events: Vec<Event>| {
            for event in limited(events, limits) {
                if let Err(error) = file.append_line(&line(&event, format)) {
                    tracing::error!(%error, "failed to write an audit event");
                    metrics.audit_errors.with(&["log"]).add(1);
                }
            }
            std::future::ready(())
        });
        carriers.tasks.spawn(writing.in_current_span());
        Destination::Queue(queue)
    } else {
        Destination::Log(format, Mutex::new(file))
    };
    Sink { name: "log", mode: config.mode, limits: config.limits, to }
}

// DEVIATION: in the modes blocking and blocking-strict a task sends one event at a time to the webhook, and a request
// does not wait for the webhook's response. An event counts as written when there is room in the queue.
fn webhook_sink(config: WebhookConfig, metrics: &Arc<Metrics>, carriers: &mut Carriers) -> Sink {
    let batch = match config.mode {
        Mode::Batch => config.batch,
        Mode::Blocking | Mode::BlockingStrict => batch::Config { batch_size_max: 1, throttle: None, ..config.batch },
    };
    let (queue, waiting) = queue::new(batch, carriers.closing.subscribe());
    let (webhook, metrics) = (Arc::new(config.webhook), metrics.clone());
    let (limits, backoff) = (config.limits, config.initial_backoff);
    let sending = waiting.run(move |events| {
        let (webhook, metrics) = (webhook.clone(), metrics.clone());
        async move {
            let events = limited(events, limits);
            if let Err(error) = webhook.send(&events, backoff).await {
                tracing::error!(%error, events = events.len(), "failed to send audit events");
                metrics.audit_errors.with(&["webhook"]).add(events.len() as u64);
            }
        }
    });
    carriers.tasks.spawn(sending.in_current_span());
    Sink { name: "webhook", mode: config.mode, limits: None, to: Destination::Queue(queue) }
}

/// Truncates events to the limits, if there are any.
fn limited(events: Vec<Event>, limits: Option<Limits>) -> Vec<Event> {
    let Some(limits) = limits else { return events };
    let cut = cut(events, limits);
    for _ in &cut.lost {
        tracing::error!("event is too large even after truncating");
    }
    cut.batches.into_iter().flatten().collect()
}

/// Converts a user to the form of audit events.
pub fn user_of(user: &auth::User) -> User {
    User { username: user.name.clone(), uid: user.uid.clone(), groups: user.groups.clone(), extra: user.extra.clone() }
}
