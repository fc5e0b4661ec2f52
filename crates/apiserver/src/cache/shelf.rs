//! The objects of one kind, and how they changed of late.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, RwLock};

use api::kind::{Kind, Selectable};
use machinery::Str;
use mvcc::Revision;
use tokio::sync::watch;

use super::{Change, Entry};

/// Changes that are kept for watchers, at most.
const CHANGES_MAX: usize = 10_000;
/// Bytes of changed objects that are kept for watchers, at most.
const CHANGE_BYTES_MAX: usize = 16 << 20;
/// Changes that a watcher is given at once.
const BATCH_MAX: usize = 256;

/// The objects of one kind.
pub struct Shelf {
    inner: RwLock<Inner>,
    selectable: Vec<Selectable>,
    filled: watch::Sender<bool>,
    /// Told when something happened here: whoever watches one kind is not woken for the others.
    moved: watch::Sender<()>,
    /// The edition of the kind; 0 once a custom kind is no longer served from here.
    edition: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    entries: BTreeMap<Str, Arc<Entry>>,
    changes: VecDeque<Arc<Change>>,
    change_bytes: usize,
    /// What the entries weigh.
    entry_bytes: usize,
    /// Changes after this revision are all kept.
    floor: Revision,
    /// The entries are those of this revision.
    revision: Revision,
}

/// A watcher asks for changes that are no longer kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The oldest revision from which on changes are kept.
    pub floor: Revision,
}

impl Shelf {
    /// An empty shelf of a kind.
    pub fn new(kind: &Kind) -> Self {
        Self {
            inner: RwLock::default(),
            selectable: kind.selectable.clone(),
            filled: watch::Sender::new(false),
            moved: watch::Sender::new(()),
            edition: watch::Sender::new(kind.edition),
        }
    }

    /// Whether it is the shelf of this edition of a kind.
    pub fn is_of(&self, edition: u64) -> bool {
        *self.edition.borrow() == edition
    }

    /// From now on it is the shelf of another edition of its kind.
    pub fn pass_to(&self, edition: u64) {
        self.edition.send_if_modified(|have| std::mem::replace(have, edition) != edition);
    }

    /// Waits until it is the shelf of another edition, or of none.
    pub async fn passed_from(&self, edition: u64) {
        // The sender is this shelf's own.
        let _ = self.edition.subscribe().wait_for(|have| *have != edition).await;
    }

    /// The selectable fields of its entries, in their order.
    pub fn selectable(&self) -> &[Selectable] {
        &self.selectable
    }

    /// The entry of a key.
    pub fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.inner.read().expect("no holder panics").entries.get(key).cloned()
    }

    /// All entries, or those of a namespace, in the order of their keys, that `keep` wants.
    pub fn list(&self, namespace: &str, keep: impl Fn(&Entry) -> bool) -> Vec<Arc<Entry>> {
        self.snapshot(namespace, keep).0
    }

    /// The same with the revision of the last change that it has.
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

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.inner.read().expect("no holder panics").entries.len()
    }

    /// How many entries there are, and what they weigh in bytes.
    pub fn weight(&self) -> (usize, usize) {
        let inner = self.inner.read().expect("no holder panics");
        (inner.entries.len(), inner.entry_bytes)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next changes after a revision, oldest first, as many as are given at once.
    pub fn changes_after(&self, revision: Revision) -> Result<Vec<Arc<Change>>, Missed> {
        let inner = self.inner.read().expect("no holder panics");
        if revision < inner.floor {
            return Err(Missed { floor: inner.floor });
        }
        let from = inner.changes.partition_point(|change| change.revision <= revision);
        Ok(inner.changes.range(from..).take(BATCH_MAX).cloned().collect())
    }

    /// Tells whenever there are changes, or everything began anew.
    pub fn follow(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }

    /// Wakes those who follow.
    pub(super) fn tell(&self) {
        self.moved.send_replace(());
    }

    /// Begins anew with what the store has at `revision`.
    pub(super) fn reset(&self, entries: BTreeMap<Str, Arc<Entry>>, revision: Revision) {
        let mut inner = self.inner.write().expect("no holder panics");
        let entry_bytes = entries.values().map(|entry| entry.size()).sum();
        *inner = Inner { entries, entry_bytes, floor: revision, revision, ..Inner::default() };
        drop(inner);
        self.filled.send_replace(true);
        self.tell();
    }

    /// Waits until what the store has is here.
    pub async fn filled(&self) {
        let mut filled = self.filled.subscribe();
        // The sender is this shelf's own.
        let _ = filled.wait_for(|filled| *filled).await;
    }

    /// The revision of the last change.
    pub fn revision(&self) -> Revision {
        self.inner.read().expect("no holder panics").revision
    }

    /// Takes in a change: the new entry of a key, or none if it is gone.
    pub(super) fn change(&self, key: &str, after: Option<Arc<Entry>>, revision: Revision) {
        if !*self.filled.borrow() {
            // What comes before the first filling is in it.
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
        inner.change_bytes += change.shown().size();
        inner.changes.push_back(change);
        while inner.changes.len() > CHANGES_MAX || inner.change_bytes > CHANGE_BYTES_MAX {
            let Some(old) = inner.changes.pop_front() else { break };
            inner.change_bytes -= old.shown().size();
            inner.floor = old.revision;
        }
    }
}
