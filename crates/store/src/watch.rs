//! Watch hub: wakes the watchers that a change concerns, which then read the events from the state.
//!
//! The order of steps guarantees that no event is missed. A watcher takes its mark *before* it reads the state; a
//! change is applied *before* it is published. Any change that the read did not see is published later and sets the
//! mark again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mvcc::{Revision, Span, State, WatchId, WatchSet};
use tokio::sync::Notify;

/// All watchers of a member. Clones are handles to the same hub.
#[derive(Clone, Debug, Default)]
pub struct Hub {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    set: WatchSet,
    owners: BTreeMap<WatchId, Arc<Mailbox>>,
    last_id: WatchId,
    published: Revision,
}

/// Queue of the watchers of one client that have pending events. A watcher is queued when it gets a mark, or by its own
/// client, so there are at most two entries per watcher.
#[derive(Debug, Default)]
struct Mailbox {
    ready: Mutex<VecDeque<WatchId>>,
    notify: Notify,
}

/// The watchers of one client.
#[derive(Debug)]
pub struct Watchers {
    hub: Hub,
    mailbox: Arc<Mailbox>,
    ids: BTreeSet<WatchId>,
}

impl Hub {
    /// Notifies watchers of everything applied since the last call. Must be called after every batch and after a
    /// restore.
    pub fn publish(&self, state: &State) {
        let mut inner = self.lock();
        let from = inner.published + 1;
        let inner = &mut *inner;
        // A received state may start after a compaction that was not published here.
        let mut woken = if from < state.log_floor() { inner.set.notice_lost(from) } else { Vec::new() };
        for event in state.all_events(from) {
            woken.extend(inner.set.notice(event));
        }
        for id in woken {
            if let Some(mailbox) = inner.owners.get(&id) {
                mailbox.put(id);
            }
        }
        inner.published = state.revision();
    }

    /// Creates a queue for the watchers of one client.
    pub fn watchers(&self) -> Watchers {
        Watchers { hub: self.clone(), mailbox: Arc::default(), ids: BTreeSet::new() }
    }

    /// Returns the number of watchers, and of watchers with pending events.
    pub fn counts(&self) -> (usize, usize) {
        self.lock().set.counts()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watchers {
    /// Adds a watcher from a revision on. The watcher is ready immediately, because events applied since that revision
    /// are not published again.
    pub fn add(&mut self, span: Span, from: Revision) -> WatchId {
        let mut inner = self.hub.lock();
        inner.last_id += 1;
        let id = inner.last_id;
        inner.set.add(id, span, Some(from));
        inner.owners.insert(id, self.mailbox.clone());
        drop(inner);
        self.ids.insert(id);
        self.mailbox.put(id);
        id
    }

    pub fn remove(&mut self, id: WatchId) {
        if self.ids.remove(&id) {
            let mut inner = self.hub.lock();
            inner.set.remove(id);
            inner.owners.remove(&id);
        }
    }

    /// Waits for a watcher with pending events and takes its mark. The state must be read only after this.
    pub async fn ready(&self) -> (WatchId, Revision) {
        loop {
            if let Some(ready) = self.try_ready() {
                return ready;
            }
            self.mailbox.notify.notified().await;
        }
    }

    /// Like [`Watchers::ready`], or none if no watcher has pending published events.
    pub fn try_ready(&self) -> Option<(WatchId, Revision)> {
        loop {
            let id = self.mailbox.take()?;
            let mut inner = self.hub.lock();
            // The queue may still contain the ID of a removed watcher, or an ID twice.
            if let Some(mark) = inner.set.mark(id) {
                inner.set.set_mark(id, None);
                return Some((id, mark));
            }
        }
    }

    /// Returns the published revision if the watcher has no pending events up to it; none otherwise.
    pub fn quiet_until(&self, id: WatchId) -> Option<Revision> {
        let inner = self.hub.lock();
        inner.set.mark(id).is_none().then_some(inner.published)
    }

    /// Marks a watcher as having more events from a revision on.
    pub fn again(&self, id: WatchId, from: Revision) {
        self.hub.lock().set.set_mark(id, Some(from));
        self.mailbox.put(id);
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        let mut inner = self.hub.lock();
        for id in &self.ids {
            inner.set.remove(*id);
            inner.owners.remove(id);
        }
    }
}

impl Mailbox {
    fn put(&self, id: WatchId) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(id);
        self.notify.notify_one();
    }

    fn take(&self) -> Option<WatchId> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

#[cfg(test)]
mod tests {
    use mvcc::{Command, Put};

    use super::*;

    fn put(state: &mut State, key: &str) {
        let command = Command::Put(Put {
            key: key.to_owned().into(),
            value: Some("v".into()),
            lease: Some(0),
            want_previous: false,
        });
        let index = u64::try_from(state.revision()).expect("a revision is positive") + 1;
        state.apply(index, &command).result.expect("a put succeeds");
    }

    #[test]
    fn watcher_without_a_mark_has_read_all_published_events() {
        let (hub, mut state) = (Hub::default(), State::default());
        let mut watchers = hub.watchers();
        let id = watchers.add(Span::prefix("a/"), 1);
        assert_eq!(watchers.quiet_until(id), None, "it has not read the files yet");
        assert_eq!(watchers.try_ready(), Some((id, 1)));
        for number in 0..100 {
            put(&mut state, &format!("b/{number}"));
            hub.publish(&state);
            assert_eq!(watchers.quiet_until(id), Some(state.revision()), "other keys need not be scanned");
        }
        put(&mut state, "a/1");
        assert_eq!(watchers.quiet_until(id), Some(state.revision() - 1), "applied is not published");
        hub.publish(&state);
        assert_eq!(watchers.quiet_until(id), None);
        assert_eq!(watchers.try_ready(), Some((id, state.revision())));
        assert_eq!(watchers.quiet_until(id), Some(state.revision()));
    }
}
