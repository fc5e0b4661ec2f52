//! Watch cache of one kind: its objects and its most recent changes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, RwLock};

use api::kind::{Kind, Selectable};
use apimachinery::Str;
use mvcc::Revision;
use tokio::sync::watch;

use super::{Change, Entry};

/// Maximum number of changes kept for watchers.
const CHANGES_MAX: usize = 10_000;
/// Maximum bytes of changed objects kept for watchers.
const CHANGE_BYTES_MAX: usize = 16 << 20;
/// Maximum number of changes returned to a watcher per call.
const BATCH_MAX: usize = 256;

/// The cached objects of one kind.
pub struct KindCache {
    inner: RwLock<Inner>,
    selectable: Vec<Selectable>,
    filled: watch::Sender<bool>,
    /// Notified of changes of this kind only, so that watchers of other kinds are not woken.
    moved: watch::Sender<()>,
    /// The edition of the kind; 0 once a custom kind is no longer served from this cache.
    edition: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    entries: BTreeMap<Str, Arc<Entry>>,
    changes: VecDeque<Arc<Change>>,
    change_bytes: usize,
    /// Total size of the entries.
    entry_bytes: usize,
    /// All changes after this revision are kept.
    floor: Revision,
    /// The revision that the entries reflect.
    revision: Revision,
}

/// A watcher requested changes that are no longer kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiredRevision {
    /// The oldest revision from which a watch can start.
    pub floor: Revision,
}

impl KindCache {
    pub fn new(kind: &Kind) -> Self {
        Self {
            inner: RwLock::default(),
            selectable: kind.selectable.clone(),
            filled: watch::Sender::new(false),
            moved: watch::Sender::new(()),
            edition: watch::Sender::new(kind.edition),
        }
    }

    /// Whether this cache belongs to the edition of its kind.
    pub fn is_of(&self, edition: u64) -> bool {
        *self.edition.borrow() == edition
    }

    /// Assigns this cache to another edition of its kind.
    pub fn pass_to(&self, edition: u64) {
        self.edition.send_if_modified(|have| std::mem::replace(have, edition) != edition);
    }

    /// Waits until the cache belongs to another edition, or to none.
    pub async fn passed_from(&self, edition: u64) {
        // This cache owns the sender, so the wait cannot fail.
        let _ = self.edition.subscribe().wait_for(|have| *have != edition).await;
    }

    /// Returns the selectable fields, in the order of the entries' field values.
    pub fn selectable(&self) -> &[Selectable] {
        &self.selectable
    }

    pub fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.inner.read().expect("no holder panics").entries.get(key).cloned()
    }

    /// Returns the entries that `keep` accepts, in key order; all namespaces if `namespace` is empty.
    pub fn list(&self, namespace: &str, keep: impl Fn(&Entry) -> bool) -> Vec<Arc<Entry>> {
        self.snapshot(namespace, keep).0
    }

    /// Like [`Self::list`], and also returns the revision that the entries reflect.
    pub fn snapshot(&self, namespace: &str, keep: impl Fn(&Entry) -> bool) -> (Vec<Arc<Entry>>, Revision) {
        let inner = self.inner.read().expect("no holder panics");
        if namespace.is_empty() {
            let all = inner.entries.values().filter(|entry| keep(entry)).cloned().collect();
            return (all, inner.revision);
        }
        let start = Str::from(format!("{namespace}/"));
        let rest = inner.entries.range::<Str, _>((Bound::Included(&start), Bound::Unbounded));
        let own = rest.take_while(|(key, _)| key.starts_with(start.as_str()));
        (own.map(|(_, entry)| entry).filter(|entry| keep(entry)).cloned().collect(), inner.revision)
    }

    pub fn len(&self) -> usize {
        self.inner.read().expect("no holder panics").entries.len()
    }

    /// Returns the number of entries and their total size in bytes.
    pub fn weight(&self) -> (usize, usize) {
        let inner = self.inner.read().expect("no holder panics");
        (inner.entries.len(), inner.entry_bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns up to `BATCH_MAX` changes after a revision, oldest first.
    pub fn changes_after(&self, revision: Revision) -> Result<Vec<Arc<Change>>, ExpiredRevision> {
        let inner = self.inner.read().expect("no holder panics");
        if revision < inner.floor {
            return Err(ExpiredRevision { floor: inner.floor });
        }
        let from = inner.changes.partition_point(|change| change.revision <= revision);
        Ok(inner.changes.range(from..).take(BATCH_MAX).cloned().collect())
    }

    /// Returns a receiver that is notified of changes and resets.
    pub fn follow(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }

    /// Notifies the followers.
    pub(super) fn notify(&self) {
        self.moved.send_replace(());
    }

    /// Replaces all entries by the store's state at `revision` and drops the kept changes.
    pub(super) fn reset(&self, entries: BTreeMap<Str, Arc<Entry>>, revision: Revision) {
        let mut inner = self.inner.write().expect("no holder panics");
        let entry_bytes = entries.values().map(|entry| entry.size()).sum();
        *inner = Inner { entries, entry_bytes, floor: revision, revision, ..Inner::default() };
        drop(inner);
        self.filled.send_replace(true);
        self.notify();
    }

    /// Waits until the cache was filled from the store.
    pub async fn filled(&self) {
        let mut filled = self.filled.subscribe();
        // This cache owns the sender, so the wait cannot fail.
        let _ = filled.wait_for(|filled| *filled).await;
    }

    /// Returns the revision that the entries reflect.
    pub fn revision(&self) -> Revision {
        self.inner.read().expect("no holder panics").revision
    }

    /// Applies a change: the new entry of a key, or `None` for a deletion.
    pub(super) fn change(&self, key: &str, after: Option<Arc<Entry>>, revision: Revision) {
        if !*self.filled.borrow() {
            // Changes before the first fill are part of that fill.
            return;
        }
        let mut inner = self.inner.write().expect("no holder panics");
        let before = match &after {
            Some(entry) => inner.entries.insert(entry.key.clone(), entry.clone()),
            None => inner.entries.remove(key),
        };
        if before.is_none() && after.is_none() {
            return;
        }
        inner.entry_bytes += after.as_ref().map_or(0, |entry| entry.size());
        inner.entry_bytes -= before.as_ref().map_or(0, |entry| entry.size());
        inner.revision = revision;
        let change = Arc::new(Change::new(revision, before, after));
        inner.change_bytes += change.latest().size();
        inner.changes.push_back(change);
        while inner.changes.len() > CHANGES_MAX || inner.change_bytes > CHANGE_BYTES_MAX {
            let Some(old) = inner.changes.pop_front() else { break };
            inner.change_bytes -= old.latest().size();
            inner.floor = old.revision;
        }
    }
}
