//! A copy of the objects of a kind, kept true by one watch, for any number of readers.
//!
//! [`new`] makes two halves. The [`Reflector`] is the only writer: it lists, watches, resumes and lists again when it must.
//! A [`Reader`] takes snapshots, which are values that no longer change, waits for the cache to reach a revision, and
//! has the keys that changes concern put into [`Notices`].
//!
//! ```text
//!            ┌────────────── 410: the version is no longer kept ──────────────┐
//!            v                                                                │
//!   initial events, or a list in pages ──> synced ──> watch from the version reached ──┐
//!            ^                                              ^                          │
//!            └── failed before it was whole: wait           └── ended or broke: wait ──┘
//! ```

mod notices;
mod reflector;

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use machinery::collection::{Collection, Entry, IndexBy};
use machinery::{Key, Resource, Str, Value};
use tokio::sync::watch;

pub use notices::{Changed, Notices};
pub use reflector::Reflector;

use crate::Client;
use crate::backoff::Backoff;
use crate::held::{Held, Lean};

/// What to keep a copy of.
#[derive(Clone)]
pub struct Source {
    /// Asked for it.
    pub client: Client,
    /// The kind.
    pub resource: Resource,
    /// Only this namespace; empty for all.
    pub namespace: Str,
    /// Only what has such labels; empty for all.
    pub label_selector: String,
    /// Only what has such fields; empty for all.
    pub field_selector: String,
}

/// How a cache is kept true.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Waits after a failure.
    pub backoff: Backoff,
    /// Objects in one answer where a list is needed.
    pub page_limit: u32,
    /// A watch is asked to end after this long or up to twice as long, so that load spreads over servers.
    pub watch_timeout: Duration,
}

/// A state of a cache that no longer changes.
#[derive(Debug)]
pub struct Snapshot<T> {
    /// The objects.
    pub objects: Collection<T>,
    /// The version of the store up to which they are true.
    pub revision: u64,
}

/// How far a cache is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether it ever held everything. It still does, perhaps as it was a while ago.
    pub synced: bool,
    /// The version of the store that it has reached.
    pub revision: u64,
    /// Why it does not go on, if it does not.
    pub failure: Option<Arc<str>>,
}

/// The reflector has ended, so that the cache will not change any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache is no longer kept up to date")]
pub struct Ended;

/// A change of one object.
pub struct Change<'a, T> {
    /// The object.
    pub key: &'a Key,
    /// What it was before; `None` if it is new.
    pub old: Option<&'a T>,
    /// What it is; `None` if it is gone.
    pub new: Option<&'a T>,
}

/// Reads a cache. Clones read the same one.
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    progress: watch::Receiver<Progress>,
}

struct Shared<T> {
    state: RwLock<Snapshot<T>>,
    subscribers: Mutex<Vec<Subscriber<T>>>,
}

/// What a cache keeps of each object.
struct Keep<T> {
    /// Whether objects may be those that others hold.
    lean: Option<Lean>,
    make: Box<dyn Fn(Held) -> Arc<Entry<T>> + Send + Sync>,
}

/// Says which keys a change concerns.
type Route<T> = Box<dyn Fn(&Change<'_, T>, &mut Vec<Key>) + Send + Sync>;

struct Subscriber<T> {
    route: Route<T>,
    notices: Notices,
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
    /// All objects of a kind.
    pub fn all(client: Client, resource: Resource) -> Self {
        let (label_selector, field_selector) = (String::new(), String::new());
        Self { client, resource, namespace: Str::default(), label_selector, field_selector }
    }
}

/// Makes a cache that holds what `keep` makes of each object. It stays empty until the reflector runs.
pub fn new<T: Send + Sync + 'static>(
    source: Source,
    settings: Settings,
    index_by: Vec<IndexBy<T>>,
    keep: impl Fn(Value) -> T + Send + Sync + 'static,
) -> (Reflector<T>, Reader<T>) {
    let keep = move |held| {
        let Entry { key, revision, value } = Arc::unwrap_or_clone(held);
        Arc::new(Entry { key, revision, value: keep(value) })
    };
    halves(source, settings, index_by, Keep { lean: None, make: Box::new(keep) })
}

/// Makes a cache that holds objects without who manages their fields; with a server in this process, the same ones as every other such
/// cache.
pub fn lean(source: Source, settings: Settings, index_by: Vec<IndexBy<Value>>) -> (Reflector<Value>, Reader<Value>) {
    halves(source, settings, index_by, Keep { lean: Some(Lean), make: Box::new(|held| held) })
}

/// Makes a cache that holds what `digest` makes of each object; with a server in this process, of the same one that every other such
/// cache is shown. A client that asks for metadata only may be shown more.
pub fn digest<T: Send + Sync + 'static>(
    source: Source,
    settings: Settings,
    index_by: Vec<IndexBy<T>>,
    digest: impl Fn(&Value) -> T + Send + Sync + 'static,
) -> (Reflector<T>, Reader<T>) {
    let make = move |held: Held| {
        let Entry { key, revision, value } = &*held;
        Arc::new(Entry { key: key.clone(), revision: *revision, value: digest(value) })
    };
    halves(source, settings, index_by, Keep { lean: Some(Lean), make: Box::new(make) })
}

fn halves<T: Send + Sync + 'static>(
    source: Source,
    settings: Settings,
    index_by: Vec<IndexBy<T>>,
    keep: Keep<T>,
) -> (Reflector<T>, Reader<T>) {
    let state = RwLock::new(Snapshot { objects: Collection::new(index_by), revision: 0 });
    let shared = Arc::new(Shared { state, subscribers: Mutex::new(Vec::new()) });
    let (sender, progress) = watch::channel(Progress::default());
    let reader = Reader { shared: Arc::clone(&shared), progress };
    (Reflector::new(source, settings, keep, shared, sender), reader)
}

impl<T> Reader<T> {
    /// The state now.
    pub fn snapshot(&self) -> Snapshot<T> {
        self.shared.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One object as it is now, which costs less than to take the state for it.
    pub fn get(&self, key: &Key) -> Option<Arc<Entry<T>>> {
        self.shared.state.read().unwrap_or_else(PoisonError::into_inner).objects.entry(key).cloned()
    }

    /// How far the cache is now.
    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// Waits for the cache to hold everything for the first time.
    pub async fn synced(&self) -> Result<(), Ended> {
        self.wait_for(|progress| progress.synced).await
    }

    /// Waits for the cache to show the store as of `revision` or later.
    pub async fn reached(&self, revision: u64) -> Result<(), Ended> {
        self.wait_for(|progress| progress.synced && progress.revision >= revision).await
    }

    /// Waits for any progress after the last call on this reader.
    pub async fn advanced(&mut self) -> Result<(), Ended> {
        self.progress.changed().await.map_err(|_| Ended)
    }

    /// Has the keys that `route` gives for a change put into `notices`, from now on and for everything that is there already.
    pub fn subscribe(&self, notices: &Notices, route: impl Fn(&Change<'_, T>, &mut Vec<Key>) + Send + Sync + 'static) {
        let notices = notices.clone();
        let route: Route<T> = Box::new(route);
        let mut subscribers = self.shared.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        // What changes from here on waits for the lock and is told then.
        let mut keys = Vec::new();
        for entry in self.snapshot().objects.iter() {
            route(&Change { key: &entry.key, old: None, new: Some(&entry.value) }, &mut keys);
        }
        notices.add(keys);
        subscribers.push(Subscriber { route, notices });
    }

    async fn wait_for(&self, condition: impl FnMut(&Progress) -> bool) -> Result<(), Ended> {
        self.progress.clone().wait_for(condition).await.map(drop).map_err(|_| Ended)
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
