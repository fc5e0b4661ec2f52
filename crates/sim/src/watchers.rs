//! Watchers: clients that follow keys at one member, and go on at another when it dies.

use std::collections::BTreeMap;

use mvcc::{Span, State, WatchSet};

use crate::invariants::watch_misses_nothing::Seen;
use crate::random::Random;

pub(crate) struct Watchers {
    pub watchers: Vec<Watcher>,
    /// What each member keeps of its watchers, as long as it lives.
    hubs: BTreeMap<usize, Hub>,
    skip_events: bool,
}

pub(crate) struct Watcher {
    pub span: Span,
    pub seen: Vec<Seen>,
    next: i64,
    host: Option<usize>,
}

#[derive(Default)]
struct Hub {
    set: WatchSet,
    published: i64,
}

/// Events read in one go: few, so that reading is often interrupted.
const BATCH: usize = 2;

impl Watchers {
    pub(crate) fn new(skip_events: bool) -> Self {
        let spans = [Span::prefix("key/"), Span::key("key/1"), Span::all()];
        let watcher = |span| Watcher { span, seen: Vec::new(), next: 1, host: None };
        Self { watchers: spans.into_iter().map(watcher).collect(), hubs: BTreeMap::new(), skip_events }
    }

    /// A member is gone, and its watchers' connections with it.
    pub(crate) fn lose(&mut self, host: usize) {
        self.hubs.remove(&host);
        self.watchers.iter_mut().filter(|watcher| watcher.host == Some(host)).for_each(|watcher| watcher.host = None);
    }

    /// A member's state moved on, or time did: those without a member come here, and those with something to read may read.
    pub(crate) fn look(&mut self, host: usize, state: &State, random: &mut Random, eager: bool) {
        let hub = self.hubs.entry(host).or_default();
        for event in state.all_events(hub.published + 1) {
            hub.set.notice(event);
        }
        hub.published = state.revision();
        for (id, watcher) in (0_u64..).zip(&mut self.watchers) {
            if watcher.host.is_none() && (eager || random.percent(30)) {
                watcher.host = Some(host);
                hub.set.add(id, watcher.span.clone(), Some(watcher.next));
            }
            if watcher.host == Some(host) && (eager || random.percent(60)) {
                watcher.pull(id, hub, state, self.skip_events && random.percent(5));
            }
        }
    }
}

impl Watcher {
    fn pull(&mut self, id: u64, hub: &mut Hub, state: &State, skip: bool) {
        while let Some(mark) = hub.set.mark(id) {
            // This member may be behind the one that was watched before.
            if mark > state.revision() {
                return;
            }
            let batch = state.event_batch(&self.span, mark, BATCH).expect("nothing is compacted");
            let events = batch.events.iter().skip(usize::from(skip));
            self.seen.extend(events.map(|event| {
                let value = (!event.record.is_tombstone()).then(|| event.record.value().to_vec());
                (event.record.mod_revision, event.record.key().to_vec(), value)
            }));
            self.next = batch.next;
            hub.set.set_mark(id, batch.more.then_some(batch.next));
        }
    }
}
