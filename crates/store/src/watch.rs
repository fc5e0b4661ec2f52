//! Wakes the watchers that a change concerns; they read it from the state themselves.
//!
//! The order of steps is what makes it miss nothing. A watcher takes its mark *before* it looks at the state; a change is applied
//! *before* it is published. So whatever a watcher's look did not show is published after it, and marks it again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mvcc::{Revision, Span, State, WatchId, WatchSet};
use tokio::sync::Notify;

/// All watchers of a member. Clones are handles to the same.
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

/// Where the watchers of one client are told that they have something to read, in turn. A watcher is put here when it gets a mark, or by its own
/// client, so there are at most two entries for each.
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
    /// Tells watchers of everything that was applied since the last call. Call it after every batch, and after a restore.
    pub fn publish(&self, state: &State) {
        let mut inner = self.lock();
        let from = inner.published + 1;
        let inner = &mut *inner;
        // A state that was received may begin after a compaction of which nobody here has heard.
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

    /// A place for the watchers of one client.
    pub fn watchers(&self) -> Watchers {
        Watchers { hub: self.clone(), mailbox: Arc::default(), ids: BTreeSet::new() }
    }

    /// How many watchers there are, and how many of them have something to read.
    pub fn counts(&self) -> (usize, usize) {
        self.lock().set.counts()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watchers {
    /// Adds a watcher that reads from a revision on. It is ready at once: what was applied since the revision was chosen is not published again.
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

    /// Takes a watcher out.
    pub fn remove(&mut self, id: WatchId) {
        if self.ids.remove(&id) {
            let mut inner = self.hub.lock();
            inner.set.remove(id);
            inner.owners.remove(&id);
        }
    }

    /// Waits for a watcher that has something to read and takes its mark. Look at the state only after this.
    pub async fn ready(&self) -> (WatchId, Revision) {
        loop {
            if let Some(ready) = self.try_ready() {
                return ready;
            }
            self.mailbox.notify.notified().await;
        }
    }

    /// As [`Watchers::ready`], or none if all have read everything that was published.
    pub fn try_ready(&self) -> Option<(WatchId, Revision)> {
        loop {
            let id = self.mailbox.take()?;
            let mut inner = self.hub.lock();
            // The id of a watcher that was removed, or put here twice, is still in the mailbox.
            if let Some(mark) = inner.set.mark(id) {
                inner.set.set_mark(id, None);
                return Some((id, mark));
            }
        }
    }

    /// The revision up to which a watcher has nothing to read: all that was published. None if it has.
    pub fn quiet_until(&self, id: WatchId) -> Option<Revision> {
        let inner = self.hub.lock();
        inner.set.mark(id).is_none().then_some(inner.published)
    }

    /// Says that a watcher has more to read, from a revision on.
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
    fn a_watcher_without_a_mark_has_read_all_that_was_published() {
        let (hub, mut state) = (Hub::default(), State::default());
        let mut watchers = hub.watchers();
        let id = watchers.add(Span::prefix("a/"), 1);
        assert_eq!(watchers.quiet_until(id), None, "it has not looked yet");
        assert_eq!(watchers.try_ready(), Some((id, 1)));
        for number in 0..100 {
            put(&mut state, &format!("b/{number}"));
            hub.publish(&state);
            assert_eq!(watchers.quiet_until(id), Some(state.revision()), "what is elsewhere need not be looked at");
        }
        put(&mut state, "a/1");
        assert_eq!(watchers.quiet_until(id), Some(state.revision() - 1), "applied is not published");
        hub.publish(&state);
        assert_eq!(watchers.quiet_until(id), None);
        assert_eq!(watchers.try_ready(), Some((id, state.revision())));
        assert_eq!(watchers.quiet_until(id), Some(state.revision()));
    }
}
