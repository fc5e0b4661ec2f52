//! Shared cache of the objects of a kind, maintained by one watch, for any number of readers.
//!
//! [`new`] returns two halves. The [`Reflector`] is the only writer: it lists, watches, resumes, and relists if
//! necessary. A [`Reader`] takes immutable snapshots, waits for the cache to reach a revision, and routes the keys of
//! changes into a [`ChangeQueue`].
//!
//! ```text
//!            ┌──────────── 410: the resourceVersion was compacted ────────────┐
//!            v                                                                │
//!   initial events, or a paged list ──> synced ──> watch from the reached version ─────┐
//!            ^                                              ^                          │
//!            └── failed before it was complete: wait        └── closed or failed: wait ┘
//! ```

mod notices;
mod reflector;

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use apimachinery::collection::{Collection, Entry, IndexBy};
use apimachinery::{Key, Resource, Str, Value};
use tokio::sync::watch;

pub use notices::{ChangeQueue, ChangedKeys};
pub use reflector::Reflector;

use crate::Client;
use crate::backoff::Backoff;
use crate::shared_objects::{SharedObject, WantShared};

/// The objects to cache.
#[derive(Clone)]
pub struct Source {
    pub client: Client,
    pub resource: Resource,
    /// The namespace; empty for all.
    pub namespace: Str,
    /// The label selector; empty for all.
    pub label_selector: String,
    /// The field selector; empty for all.
    pub field_selector: String,
}

/// The parameters of a reflector.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Back-off after a failure.
    pub backoff: Backoff,
    /// Objects per page if a list is needed.
    pub page_limit: u32,
    /// Minimum timeout of a watch request. The actual timeout is random up to twice as long, which spreads the load
    /// over servers.
    pub watch_timeout: Duration,
}

/// An immutable state of a cache.
#[derive(Debug)]
pub struct Snapshot<T> {
    pub objects: Collection<T>,
    /// The store revision that the objects reflect.
    pub revision: u64,
}

/// The progress of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether the cache was ever complete. A synced cache stays complete, but may be outdated.
    pub synced: bool,
    /// The reached store revision.
    pub revision: u64,
    /// The last error, if the reflector is failing.
    pub failure: Option<Arc<str>>,
}

/// The reflector was dropped, so the cache is no longer updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache is no longer updated")]
pub struct ClosedError;

/// A change of one object.
pub struct Change<'a, T> {
    pub key: &'a Key,
    /// The previous state; `None` if the object was created.
    pub old: Option<&'a T>,
    /// The new state; `None` if the object was deleted.
    pub new: Option<&'a T>,
}

/// A reader of a cache. Clones read the same cache.
pub struct Reader<T> {
    shared: Arc<Inner<T>>,
    progress: watch::Receiver<Progress>,
}

struct Inner<T> {
    state: RwLock<Snapshot<T>>,
    subscribers: Mutex<Vec<Subscriber<T>>>,
}

/// The conversion of objects into cached values.
struct Keep<T> {
    /// Set if objects may be shared with other caches.
    want_shared: Option<WantShared>,
    make: Box<dyn Fn(SharedObject) -> Arc<Entry<T>> + Send + Sync>,
}

/// Adds the keys that a change concerns.
type Route<T> = Box<dyn Fn(&Change<'_, T>, &mut Vec<Key>) + Send + Sync>;

struct Subscriber<T> {
    route: Route<T>,
    notices: ChangeQueue,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            backoff: Backoff { first: Duration::from_millis(200), max: Duration::from_secs(30) },
            page_limit: 500,
            watch_timeout: Duration::from_secs(300),
        }
    }
}

impl Source {
    /// Selects all objects of a kind.
    pub fn all(client: Client, resource: Resource) -> Self {
        let (label_selector, field_selector) = (String::new(), String::new());
        Self { client, resource, namespace: Str::default(), label_selector, field_selector }
    }
}

/// Creates a cache of the values that `keep` returns. The cache stays empty until the reflector runs.
pub fn new<T: Send + Sync + 'static>(
    source: Source,
    settings: Settings,
    index_by: Vec<IndexBy<T>>,
    keep: impl Fn(Value) -> T + Send + Sync + 'static,
) -> (Reflector<T>, Reader<T>) {
    let keep = move |entry| {
        let Entry { key, revision, observed_at, value } = Arc::unwrap_or_clone(entry);
        Arc::new(Entry { key, revision, observed_at, value: keep(value) })
    };
    halves(source, settings, index_by, Keep { want_shared: None, make: Box::new(keep) })
}

/// Creates a cache of objects without managedFields. With a server in this process, all such caches share the same
/// objects.
pub fn new_shared(
    source: Source,
    settings: Settings,
    index_by: Vec<IndexBy<Value>>,
) -> (Reflector<Value>, Reader<Value>) {
    halves(source, settings, index_by, Keep { want_shared: Some(WantShared), make: Box::new(|entry| entry) })
}

/// Creates a cache of the values that `digest` returns. With a server in this process, `digest` gets the objects shared
/// by all such caches, which may be complete even if the client requests metadata only.
pub fn digest<T: Send + Sync + 'static>(
    source: Source,
    settings: Settings,
    index_by: Vec<IndexBy<T>>,
    digest: impl Fn(&Value) -> T + Send + Sync + 'static,
) -> (Reflector<T>, Reader<T>) {
    let make = move |entry: SharedObject| {
        let Entry { key, revision, observed_at, value } = &*entry;
        Arc::new(Entry { key: key.clone(), revision: *revision, observed_at: *observed_at, value: digest(value) })
    };
    halves(source, settings, index_by, Keep { want_shared: Some(WantShared), make: Box::new(make) })
}

fn halves<T: Send + Sync + 'static>(
    source: Source,
    settings: Settings,
    index_by: Vec<IndexBy<T>>,
    keep: Keep<T>,
) -> (Reflector<T>, Reader<T>) {
    let state = RwLock::new(Snapshot { objects: Collection::new(index_by), revision: 0 });
    let shared = Arc::new(Inner { state, subscribers: Mutex::new(Vec::new()) });
    let (sender, progress) = watch::channel(Progress::default());
    let reader = Reader { shared: Arc::clone(&shared), progress };
    (Reflector::new(source, settings, keep, shared, sender), reader)
}

impl<T> Reader<T> {
    /// Returns the current state.
    pub fn snapshot(&self) -> Snapshot<T> {
        self.shared.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the current state of one object, at less cost than a snapshot.
    pub fn get(&self, key: &Key) -> Option<Arc<Entry<T>>> {
        self.shared.state.read().unwrap_or_else(PoisonError::into_inner).objects.entry(key).cloned()
    }

    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// Waits until the cache is complete for the first time.
    pub async fn synced(&self) -> Result<(), ClosedError> {
        self.wait_for(|progress| progress.synced).await
    }

    /// Waits until the cache reflects the store at `revision` or later.
    pub async fn reached(&self, revision: u64) -> Result<(), ClosedError> {
        self.wait_for(|progress| progress.synced && progress.revision >= revision).await
    }

    /// Waits for any progress after the last call on this reader.
    pub async fn advanced(&mut self) -> Result<(), ClosedError> {
        self.progress.changed().await.map_err(|_| ClosedError)
    }

    /// Adds the keys that `route` returns to `notices`, for all existing objects and for every later change.
    pub fn subscribe(
        &self,
        notices: &ChangeQueue,
        route: impl Fn(&Change<'_, T>, &mut Vec<Key>) + Send + Sync + 'static,
    ) {
        let notices = notices.clone();
        let route: Route<T> = Box::new(route);
        let mut subscribers = self.shared.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        // Changes from here on wait for the lock and are notified afterwards.
        let mut keys = Vec::new();
        for entry in self.snapshot().objects.iter() {
            route(&Change { key: &entry.key, old: None, new: Some(&entry.value) }, &mut keys);
        }
        notices.add(keys);
        subscribers.push(Subscriber { route, notices });
    }

    async fn wait_for(&self, condition: impl FnMut(&Progress) -> bool) -> Result<(), ClosedError> {
        self.progress.clone().wait_for(condition).await.map(drop).map_err(|_| ClosedError)
    }
}

impl<T> Clone for Reader<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), progress: self.progress.clone() }
    }
}

impl<T> Clone for Snapshot<T> {
    fn clone(&self) -> Self {
        Self { objects: self.objects.clone(), revision: self.revision }
    }
}
