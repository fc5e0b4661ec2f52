//! Watch set: the watchers to wake for a change.
//!
//! A watcher has no queue but a mark: the first revision it has not read. A change sets the marks of the watchers it
//! concerns. A marked watcher reads events from its mark on from the state's log, at its own speed. A slow watcher
//! costs one number and delays no other, and catching up is the same as following.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::record::Event;
use crate::{End, Revision, Span};

pub type WatchId = u64;

/// All watchers, indexed by their spans.
#[derive(Clone, Debug, Default)]
pub struct WatchSet {
    watchers: BTreeMap<WatchId, Watcher>,
    keys: BTreeMap<Bytes, BTreeSet<WatchId>>,
    prefixes: BTreeMap<Bytes, BTreeSet<WatchId>>,
    /// Number of watched prefixes by length: an event's key is looked up once per length.
    prefix_lengths: BTreeMap<usize, usize>,
    /// Other spans, which are checked linearly.
    ranges: BTreeMap<Span, BTreeSet<WatchId>>,
}

#[derive(Clone, Debug)]
struct Watcher {
    span: Span,
    mark: Option<Revision>,
}

impl WatchSet {
    /// Adds a watcher that must read from `mark` on, or that has read everything.
    pub fn add(&mut self, id: WatchId, span: Span, mark: Option<Revision>) {
        self.remove(id);
        match SpanKind::of(&span) {
            SpanKind::Key(key) => {
                self.keys.entry(key).or_default().insert(id);
            }
            SpanKind::Prefix(prefix) => {
                let length = prefix.len();
                let group = self.prefixes.entry(prefix).or_default();
                if group.is_empty() {
                    *self.prefix_lengths.entry(length).or_default() += 1;
                }
                group.insert(id);
            }
            SpanKind::Range => {
                self.ranges.entry(span.clone()).or_default().insert(id);
            }
        }
        self.watchers.insert(id, Watcher { span, mark });
    }

    pub fn remove(&mut self, id: WatchId) {
        let Some(watcher) = self.watchers.remove(&id) else { return };
        match SpanKind::of(&watcher.span) {
            SpanKind::Key(key) => {
                leave(&mut self.keys, &key, id);
            }
            SpanKind::Prefix(prefix) => {
                if leave(&mut self.prefixes, &prefix, id)
                    && let Some(count) = self.prefix_lengths.get_mut(&prefix.len())
                {
                    *count -= 1;
                    if *count == 0 {
                        self.prefix_lengths.remove(&prefix.len());
                    }
                }
            }
            SpanKind::Range => {
                leave(&mut self.ranges, &watcher.span, id);
            }
        }
    }

    /// Marks the watchers that an event concerns. Returns those without a previous mark, which are to be woken.
    pub fn notice(&mut self, event: &Event) -> Vec<WatchId> {
        let key = event.record.key();
        let by_key = self.keys.get(key);
        let by_prefix = self
            .prefix_lengths
            .keys()
            .take_while(|length| **length <= key.len())
            .filter_map(|length| self.prefixes.get(&key[..*length]));
        let by_range = self.ranges.iter().take_while(|(span, _)| &span.start[..] <= key);
        let by_range = by_range.filter(|(span, _)| span.contains(key)).map(|(_, group)| group);
        let mut woken = Vec::new();
        for id in by_key.into_iter().chain(by_prefix).chain(by_range).flatten() {
            let watcher = self.watchers.get_mut(id).expect("every indexed watcher exists");
            if watcher.mark.is_none() {
                watcher.mark = Some(event.record.mod_revision);
                woken.push(*id);
            }
        }
        woken
    }

    /// Marks all watchers without a mark, because individual changes from a revision on are no longer available.
    /// Reading from there fails with a compaction error. Returns the watchers to wake.
    pub fn notice_lost(&mut self, from: Revision) -> Vec<WatchId> {
        let unmarked = self.watchers.iter_mut().filter(|(_, watcher)| watcher.mark.is_none());
        let mark = |(id, watcher): (&WatchId, &mut Watcher)| {
            watcher.mark = Some(from);
            *id
        };
        unmarked.map(mark).collect()
    }

    /// Returns the revision from which a watcher must read, or none if it has read everything.
    pub fn mark(&self, id: WatchId) -> Option<Revision> {
        self.watchers.get(&id)?.mark
    }

    /// Sets the position of a watcher; none means that it has read everything.
    pub fn set_mark(&mut self, id: WatchId, mark: Option<Revision>) {
        if let Some(watcher) = self.watchers.get_mut(&id) {
            watcher.mark = mark;
        }
    }

    /// Returns the number of watchers, and of watchers with pending events.
    pub fn counts(&self) -> (usize, usize) {
        (self.watchers.len(), self.watchers.values().filter(|watcher| watcher.mark.is_some()).count())
    }
}

enum SpanKind {
    Key(Bytes),
    Prefix(Bytes),
    Range,
}

impl SpanKind {
    fn of(span: &Span) -> Self {
        if span.end == End::Single {
            SpanKind::Key(span.start.clone())
        } else if span.is_prefix() {
            SpanKind::Prefix(span.start.clone())
        } else {
            SpanKind::Range
        }
    }
}

/// Removes a watcher from its group. Returns true if the group became empty.
fn leave<K: Ord>(groups: &mut BTreeMap<K, BTreeSet<WatchId>>, key: &K, id: WatchId) -> bool {
    let Some(group) = groups.get_mut(key) else { return false };
    group.remove(&id);
    group.is_empty() && groups.remove(key).is_some()
}

#[cfg(test)]
mod tests;
