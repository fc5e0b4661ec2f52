//! Watch cache: an in-memory copy of the store for reads and watches. Its only writer is the watch of the store.
//!
//! ```text
//! store ──one watch──> feed ──> KindCache (objects of a kind, sorted; its last changes in order)
//!                                 │ list: the entries, shared        │ watch: the revision reached
//! ```
//!
//! An entry is the object's bytes (shared with an in-process store) and the fields that selectors need. A watcher is a
//! position in the changes, so a slow watcher costs nothing. A watcher that falls behind the oldest kept change gets an
//! error.

mod change;
mod entry;
mod feed;
mod kind_cache;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use api::kind::Kind;
use client::shared_objects::SharedObject;
use mvcc::Revision;
use tokio::sync::{Notify, watch};

pub use change::{Change, FrameKey, WatchEventType};
pub use entry::Entry;
pub use feed::run;
pub use kind_cache::{ExpiredRevision, KindCache};

use crate::storage_format;

/// Maximum number of decoded objects that are kept for the next reader.
const RECENT_MAX: usize = 256;

/// The watch cache of all kinds.
pub struct Cache {
    kind_caches: RwLock<BTreeMap<String, Arc<KindCache>>>,
    reached: watch::Sender<Revision>,
    /// Whether the watch of the store is running.
    fed: AtomicBool,
    /// Prefixes of kind caches created after the initial fill, which must still be read from the store.
    unfilled: Mutex<Vec<String>>,
    /// Notified when `unfilled` gets an entry.
    made: Notify,
    /// Notified when a reader waits for a revision that no event has brought: the feed requests the store's progress.
    progress_request: Notify,
    /// Whether a client in this process receives decoded objects.
    shares_objects: AtomicBool,
    /// The most recently decoded objects, so that the next reader need not decode them again.
    recent: Mutex<VecDeque<SharedObject>>,
}

/// The cache did not reach the revision within the timeout.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the watch cache has not reached revision {0} in time")]
pub struct CacheLag(pub Revision);

impl Cache {
    /// Creates an empty cache with a kind cache for every built-in kind and for the internal kinds.
    pub fn new(kinds: &[Arc<Kind>], internal: &[Kind]) -> Self {
        let cache = Self {
            kind_caches: RwLock::default(),
            reached: watch::Sender::new(0),
            fed: AtomicBool::new(false),
            unfilled: Mutex::default(),
            made: Notify::new(),
            progress_request: Notify::new(),
            shares_objects: AtomicBool::new(false),
            recent: Mutex::default(),
        };
        for kind in kinds.iter().map(|kind| &**kind).chain(internal) {
            cache.kind_cache(kind);
        }
        // The initial fill covers all of these kind caches.
        cache.unfilled.lock().expect("no holder panics").clear();
        cache
    }

    /// Whether the cache is filled and receives every change.
    pub fn is_fed(&self) -> bool {
        self.fed.load(Ordering::Relaxed)
    }

    /// Returns the cache of a kind with its current selectable fields; creates the cache if it does not exist.
    pub fn kind_cache(&self, kind: &Kind) -> Arc<KindCache> {
        let prefix = storage_format::prefix(kind);
        if let Some(kind_cache) = self.kind_caches.read().expect("no holder panics").get(prefix) {
            return kind_cache.clone();
        }
        let mut kind_caches = self.kind_caches.write().expect("no holder panics");
        let kind_cache = kind_caches.entry(prefix.to_owned()).or_insert_with(|| {
            self.unfilled.lock().expect("no holder panics").push(prefix.to_owned());
            self.made.notify_one();
            Arc::new(KindCache::new(kind))
        });
        kind_cache.clone()
    }

    /// Re-creates the kind cache of a custom resource, whose selectable fields may have changed.
    pub fn renew(&self, kind: &Kind) -> Arc<KindCache> {
        self.remove(kind);
        self.kind_cache(kind)
    }

    /// Drops the cache of a kind that is no longer served and closes its watches.
    pub fn remove(&self, kind: &Kind) {
        let dropped = self.kind_caches.write().expect("no holder panics").remove(storage_format::prefix(kind));
        if let Some(kind_cache) = dropped {
            kind_cache.pass_to(0);
        }
    }

    /// Declares that a client in this process receives decoded objects.
    pub fn hold(&self) {
        self.shares_objects.store(true, Ordering::Relaxed);
    }

    /// Returns the decoded object of an entry and keeps it among the recent objects.
    pub fn known(&self, entry: &Entry) -> SharedObject {
        entry.shared_object_or(|object| self.keep(object.clone()))
    }

    /// Keeps a changed object if a client in this process receives decoded objects.
    fn changed(&self, object: SharedObject) {
        if self.shares_objects.load(Ordering::Relaxed) {
            self.keep(object);
        }
    }

    /// Keeps a decoded object until [`RECENT_MAX`] others have been kept.
    fn keep(&self, object: SharedObject) {
        let mut recent = self.recent.lock().expect("no holder panics");
        if recent.len() >= RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(object);
    }

    /// Returns the revision up to which all changes are in the cache.
    pub fn reached(&self) -> Revision {
        *self.reached.borrow()
    }

    /// Waits until the cache has reached `revision`.
    pub async fn wait(&self, revision: Revision, at_most: Duration) -> Result<(), CacheLag> {
        if self.reached() >= revision {
            return Ok(());
        }
        let mut reached = self.reached.subscribe();
        self.progress_request.notify_one();
        let arrived = tokio::time::timeout(at_most, reached.wait_for(|reached| *reached >= revision)).await;
        match arrived {
            Ok(Ok(_)) => Ok(()),
            _ => Err(CacheLag(revision)),
        }
    }

    /// Returns a receiver that is notified of every revision reached.
    pub fn follow(&self) -> watch::Receiver<Revision> {
        self.reached.subscribe()
    }
}
