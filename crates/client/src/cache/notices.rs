//! Bounded, deduplicated set of changed keys.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use apimachinery::Key;
use tokio::sync::Notify;

/// Changed keys that wait to be processed. Clones share them.
#[derive(Clone)]
pub struct ChangeQueue(Arc<Inner>);

struct Inner {
    changed: Mutex<ChangedKeys>,
    some: Notify,
    keys_max: usize,
}

/// The changes since the last call of [`ChangeQueue::take`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedKeys {
    Keys(BTreeSet<Key>),
    /// The bound was exceeded: all keys must be processed.
    All,
}

impl ChangeQueue {
    /// Holds at most `keys_max` keys.
    pub fn new(keys_max: usize) -> Self {
        let changed = Mutex::new(ChangedKeys::Keys(BTreeSet::new()));
        Self(Arc::new(Inner { changed, some: Notify::new(), keys_max }))
    }

    pub fn add(&self, keys: impl IntoIterator<Item = Key>) {
        let mut changed = self.0.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut added = false;
        for key in keys {
            added = true;
            if let ChangedKeys::Keys(have) = &mut *changed {
                have.insert(key);
                if have.len() > self.0.keys_max {
                    *changed = ChangedKeys::All;
                }
            }
        }
        drop(changed);
        if added {
            self.0.some.notify_one();
        }
    }

    /// Waits for changes and takes all of them.
    ///
    /// Cancel safe. Meant for one waiting task.
    pub async fn take(&self) -> ChangedKeys {
        loop {
            if let Some(changed) = self.try_take() {
                return changed;
            }
            self.0.some.notified().await;
        }
    }

    /// Takes all changes; `None` if there are none.
    pub fn try_take(&self) -> Option<ChangedKeys> {
        let mut changed = self.0.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*changed, ChangedKeys::Keys(keys) if keys.is_empty()) {
            return None;
        }
        Some(std::mem::replace(&mut *changed, ChangedKeys::Keys(BTreeSet::new())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn key_is_reported_once_however_often_it_changed() {
        let notices = ChangeQueue::new(10);
        let key = |name: &str| Key::new("a", name);
        notices.add([key("x"), key("y"), key("x")]);
        notices.add([key("x")]);
        assert_eq!(notices.take().await, ChangedKeys::Keys([key("x"), key("y")].into()));
        assert_eq!(notices.try_take(), None);
    }

    #[test]
    fn exceeding_the_bound_reports_everything() {
        let notices = ChangeQueue::new(3);
        for number in 0..100_000 {
            notices.add([Key::cluster(number.to_string())]);
        }
        assert_eq!(notices.try_take(), Some(ChangedKeys::All));
        notices.add([Key::cluster("x")]);
        assert_eq!(notices.try_take(), Some(ChangedKeys::Keys([Key::cluster("x")].into())));
    }
}
