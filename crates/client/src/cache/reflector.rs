//! Reflector: the only writer of a cache. Lists, watches, resumes after failures, and relists if necessary.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use apimachinery::Value;
use apimachinery::collection::{Collection, Entry};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Change, Inner, Keep, Progress, Settings, Snapshot, Source};
use crate::backoff::random;
use crate::clock::now;
use crate::error::Error;
use crate::object_ref::Target;
use crate::options::{ListOptions, WatchOptions};
use crate::shared_objects::{SharedEvent, SharedObject, new_shared_object};
use crate::watch::Watch;

/// A watch that is closed earlier counts as failed.
const WATCH_MIN: Duration = Duration::from_secs(1);

/// Updates a cache while [`Reflector::run`] is polled.
pub struct Reflector<T> {
    source: Source,
    settings: Settings,
    keep: Keep<T>,
    shared: Arc<Inner<T>>,
    progress: watch::Sender<Progress>,
    /// The version to watch from; `None` if a list is needed.
    resume: Option<String>,
    /// Whether the server supports initial events (sendInitialEvents).
    streaming: bool,
    /// Whether data arrived since the last failure.
    progressed: bool,
}

impl<T: Send + Sync + 'static> Reflector<T> {
    pub(super) fn new(
        source: Source,
        settings: Settings,
        keep: Keep<T>,
        shared: Arc<Inner<T>>,
        progress: watch::Sender<Progress>,
    ) -> Self {
        Self { source, settings, keep, shared, progress, resume: None, streaming: true, progressed: false }
    }

    /// Updates the cache and never returns. Drop the future to stop it.
    pub async fn run(mut self) {
        let mut waits = self.settings.backoff.waits();
        loop {
            let (started, everything) = (Instant::now(), self.resume.is_none());
            let outcome = self.follow().await;
            if std::mem::take(&mut self.progressed) {
                waits.reset();
                // A watch that the server closes immediately is retried with back-off.
                if outcome.is_ok() && (everything || started.elapsed() > WATCH_MIN) {
                    continue;
                }
            }
            let mut wait = waits.next_wait();
            if let Err(error) = outcome {
                self.failed(&error);
                wait = wait.max(error.retry_after().unwrap_or_default().min(self.settings.backoff.max));
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Continues from the reached version until the server closes the watch or a request fails.
    async fn follow(&mut self) -> Result<(), Error> {
        let watch = match self.resume.clone() {
            Some(version) => {
                let watched = self.watch(version).await;
                self.note_expiry(watched)?
            }
            None if self.streaming => match self.initial_events().await {
                Ok(watch) => watch,
                Err(error) if initial_events_unsupported(&error) => {
                    self.streaming = false;
                    return self.list().await;
                }
                Err(error) => return Err(error),
            },
            None => return self.list().await,
        };
        let followed = self.apply_all(watch).await;
        self.note_expiry(followed)
    }

    fn note_expiry<R>(&mut self, outcome: Result<R, Error>) -> Result<R, Error> {
        outcome.inspect_err(|error| {
            if error.is_expired() {
                self.resume = None;
            }
        })
    }

    fn failed(&self, error: &Error) {
        let message = chain(error);
        tracing::warn!(resource = %self.source.resource, error = message, "watch failed; retrying");
        self.progress.send_modify(|progress| progress.failure = Some(message.into()));
    }

    async fn watch(&self, resource_version: String) -> Result<Watch, Error> {
        let options = WatchOptions {
            send_initial_events: resource_version.is_empty(),
            resource_version,
            bookmarks: true,
            label_selector: self.source.label_selector.clone(),
            field_selector: self.source.field_selector.clone(),
            timeout: Some(self.settings.watch_timeout.mul_f64(1.0 + random())),
        };
        self.source.client.watch_as(&self.target(), &options, self.keep.want_shared).await
    }

    fn target(&self) -> Target<'_> {
        Target::within(&self.source.resource, self.source.namespace.clone())
    }

    /// Receives all objects as initial events and returns the watch that continues after them.
    async fn initial_events(&mut self) -> Result<Watch, Error> {
        let mut watch = self.watch(String::new()).await?;
        let mut fresh = self.snapshot().objects.emptied();
        loop {
            let Some(event) = watch.next_shared(self.make()).await else {
                let text = "the watch ended before the initial list was complete".to_owned();
                return Err(crate::ResponseError::Unexpected(text).into());
            };
            match event? {
                SharedEvent::Applied(object) => self.collect(&mut fresh, object),
                SharedEvent::Deleted { key, .. } => drop(fresh.remove(&key)),
                SharedEvent::Bookmark { initial_events_end: false, .. } => {}
                SharedEvent::Bookmark { resource_version, initial_events_end: true } => {
                    self.replace(&fresh, resource_version);
                    return Ok(watch);
                }
            }
        }
    }

    /// Lists all objects in pages. Each page is converted before the next one is requested.
    async fn list(&mut self) -> Result<(), Error> {
        let mut options = ListOptions {
            label_selector: self.source.label_selector.clone(),
            field_selector: self.source.field_selector.clone(),
            limit: self.settings.page_limit,
            ..ListOptions::default()
        };
        let mut fresh = self.snapshot().objects.emptied();
        loop {
            let page = match self.source.client.list(&self.target(), &options).await {
                Ok(page) => page,
                // The version of the pages was compacted. A list in one response cannot fail like that.
                Err(error) if error.is_expired() && options.limit > 0 => {
                    options.limit = 0;
                    options.continue_token.clear();
                    fresh = fresh.emptied();
                    continue;
                }
                Err(error) => return Err(error),
            };
            for object in page.items {
                self.collect(&mut fresh, self.make()(object));
            }
            if page.continue_token.is_empty() {
                self.replace(&fresh, page.resource_version);
                return Ok(());
            }
            options.continue_token = page.continue_token;
        }
    }

    async fn apply_all(&mut self, mut watch: Watch) -> Result<(), Error> {
        while let Some(event) = watch.next_shared(self.make()).await {
            match event? {
                SharedEvent::Applied(object) => {
                    let entry = (self.keep.make)(object);
                    let version = entry.revision;
                    let old = self.change(version, |objects| objects.insert(Arc::clone(&entry)));
                    let old = old.as_ref().map(|old| &old.value);
                    self.notify(&[Change { key: &entry.key, old, new: Some(&entry.value) }]);
                }
                SharedEvent::Deleted { key, revision } => {
                    let old = self.change(revision, |objects| objects.remove(&key));
                    if let Some(old) = old {
                        self.notify(&[Change { key: &key, old: Some(&old.value), new: None }]);
                    }
                }
                SharedEvent::Bookmark { resource_version, .. } => {
                    self.change(resource_version.parse().unwrap_or(0), |_| {});
                }
            }
        }
        Ok(())
    }

    /// Adds an object to a new collection. An unchanged object reuses the cached entry.
    fn collect(&self, fresh: &mut Collection<T>, object: SharedObject) {
        let (key, version) = (&object.key, object.revision);
        let state = self.shared.state.read().unwrap_or_else(PoisonError::into_inner);
        let known = state.objects.entry(key).filter(|have| version != 0 && have.revision == version).cloned();
        drop(state);
        fresh.insert(known.unwrap_or_else(|| (self.keep.make)(object)));
    }

    /// Returns the conversion from a parsed object to an entry.
    fn make(&self) -> fn(Value) -> SharedObject {
        if self.keep.want_shared.is_some() { new_shared_object } else { |object| Arc::new(Entry::of(object, now())) }
    }

    /// Applies a change that readers see immediately, and advances the progress.
    fn change<R>(&mut self, version: u64, change: impl FnOnce(&mut Collection<T>) -> R) -> R {
        let mut state = self.shared.state.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state.objects);
        state.revision = state.revision.max(version);
        let version = state.revision;
        drop(state);
        self.advance(version);
        result
    }

    /// Replaces all objects and notifies subscribers of the differences.
    fn replace(&mut self, fresh: &Collection<T>, resource_version: String) {
        let version = resource_version.parse().unwrap_or(0);
        let next = Snapshot { objects: fresh.clone(), revision: version };
        let old = {
            let mut state = self.shared.state.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *state, next)
        };
        self.advance(version);
        self.resume = Some(resource_version);
        let mut changes = Vec::new();
        for entry in fresh.iter() {
            let before = old.objects.entry(&entry.key);
            if before.is_none_or(|before| !Arc::ptr_eq(before, entry)) {
                let old = before.map(|before| &before.value);
                changes.push(Change { key: &entry.key, old, new: Some(&entry.value) });
            }
        }
        for entry in old.objects.iter().filter(|entry| fresh.entry(&entry.key).is_none()) {
            changes.push(Change { key: &entry.key, old: Some(&entry.value), new: None });
        }
        self.notify(&changes);
    }

    fn advance(&mut self, version: u64) {
        self.progressed = true;
        if self.resume.is_some() {
            self.resume = Some(version.to_string());
        }
        self.progress.send_modify(|progress| *progress = Progress { synced: true, revision: version, failure: None });
    }

    fn notify(&self, changes: &[Change<'_, T>]) {
        let subscribers = self.shared.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        for subscriber in subscribers.iter() {
            let mut keys = Vec::new();
            for change in changes {
                (subscriber.route)(change, &mut keys);
            }
            subscriber.notices.add(keys);
        }
    }

    fn snapshot(&self) -> Snapshot<T> {
        self.shared.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether the server does not support initial events: it rejects the request as invalid.
fn initial_events_unsupported(error: &Error) -> bool {
    error.status().is_some_and(|status| matches!(status.code, 400 | 422))
}

/// Formats an error with all its causes on one line.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
