//! What is in the store, kept in memory for reads and watches: a copy with one writer, the watch of the store.
//!
//! ```text
//! store ──one watch──> feed ──> Shelf (a kind's objects, sorted; its last changes in order)
//!                                 │ list: the entries, shared        │ watch: a number, the revision reached
//! ```
//!
//! An object is its bytes, shared with the store where that is in the process, and the little that selectors need. A
//! watcher is a position in the changes, so a slow one costs nothing; one that falls behind the oldest change that is
//! kept is told so.

mod change;
mod entry;
mod feed;
mod shelf;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use api::kind::Kind;
use client::held::Held;
use mvcc::Revision;
use tokio::sync::{Notify, watch};

pub use change::{Change, FrameKey, What};
pub use entry::Entry;
pub use feed::run;
pub use shelf::{Missed, Shelf};

use crate::storage;

/// Objects that are kept as they were read for whoever asks next, at most.
const RECENT_MAX: usize = 256;

/// All that is cached.
pub struct Cache {
    shelves: RwLock<BTreeMap<String, Arc<Shelf>>>,
    reached: watch::Sender<Revision>,
    /// Whether the store is being watched.
    fed: AtomicBool,
    /// Shelves that were made after the cache was filled, and what is in the store for them is still to be read.
    unfilled: Mutex<Vec<String>>,
    /// There are such shelves.
    made: Notify,
    /// Somebody waits for a revision that no change has brought: the store is to be asked how far it is.
    nudge: Notify,
    /// Whether anybody in this process wants to be told of objects as they are.
    is_held: AtomicBool,
    /// The last ones that were read, so that the next who asks need not read them again.
    recent: Mutex<VecDeque<Held>>,
}

/// The cache did not get there in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the watch cache has not reached revision {0} in time")]
pub struct Behind(pub Revision);

impl Cache {
    /// An empty cache with a shelf for every kind that is known from the start, and for those that only the server sees.
    pub fn new(kinds: &[Arc<Kind>], internal: &[Kind]) -> Self {
        let cache = Self {
            shelves: RwLock::default(),
            reached: watch::Sender::new(0),
            fed: AtomicBool::new(false),
            unfilled: Mutex::default(),
            made: Notify::new(),
            nudge: Notify::new(),
            is_held: AtomicBool::new(false),
            recent: Mutex::default(),
        };
        for kind in kinds.iter().map(|kind| &**kind).chain(internal) {
            cache.shelf(kind);
        }
        // The first filling is of all of them.
        cache.unfilled.lock().expect("no holder panics").clear();
        cache
    }

    /// Whether it has everything and learns of every change.
    pub fn is_fed(&self) -> bool {
        self.fed.load(Ordering::Relaxed)
    }

    /// The shelf of a kind; made if there is none, and told what the kind selects by.
    pub fn shelf(&self, kind: &Kind) -> Arc<Shelf> {
        let prefix = storage::prefix(kind);
        if let Some(shelf) = self.shelves.read().expect("no holder panics").get(prefix) {
            return shelf.clone();
        }
        let mut shelves = self.shelves.write().expect("no holder panics");
        let shelf = shelves.entry(prefix.to_owned()).or_insert_with(|| {
            self.unfilled.lock().expect("no holder panics").push(prefix.to_owned());
            self.made.notify_one();
            Arc::new(Shelf::new(kind))
        });
        shelf.clone()
    }

    /// Makes the shelf of a kind anew: it came at run time, and may select by other fields than before.
    pub fn renew(&self, kind: &Kind) -> Arc<Shelf> {
        self.forget(kind);
        self.shelf(kind)
    }

    /// Drops the shelf of a kind that is no longer served. Whoever still watches it learns that no more will come.
    pub fn forget(&self, kind: &Kind) {
        let dropped = self.shelves.write().expect("no holder panics").remove(storage::prefix(kind));
        if let Some(shelf) = dropped {
            shelf.pass_to(0);
        }
    }

    /// From now on somebody in this process wants to be told of objects as they are.
    pub fn hold(&self) {
        self.is_held.store(true, Ordering::Relaxed);
    }

    /// The object of an entry, kept for a while for whoever asks next.
    pub fn known(&self, entry: &Entry) -> Held {
        entry.held_or(|object| self.keep(object.clone()))
    }

    /// Keeps an object that changed for those who are about to be told of it.
    fn changed(&self, object: Held) {
        if self.is_held.load(Ordering::Relaxed) {
            self.keep(object);
        }
    }

    /// Keeps an object until so many others have been kept.
    fn keep(&self, object: Held) {
        let mut recent = self.recent.lock().expect("no holder panics");
        if recent.len() >= RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(object);
    }

    /// The revision up to which everything is here.
    pub fn reached(&self) -> Revision {
        *self.reached.borrow()
    }

    /// Waits until everything up to `revision` is here.
    pub async fn wait(&self, revision: Revision, at_most: Duration) -> Result<(), Behind> {
        if self.reached() >= revision {
            return Ok(());
        }
        let mut reached = self.reached.subscribe();
        self.nudge.notify_one();
        let arrived = tokio::time::timeout(at_most, reached.wait_for(|reached| *reached >= revision)).await;
        match arrived {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Behind(revision)),
        }
    }

    /// Tells of every revision that is reached.
    pub fn follow(&self) -> watch::Receiver<Revision> {
        self.reached.subscribe()
    }
}
