//! Simulated watchers: clients that watch keys at one member and continue at another after a crash.

use std::collections::BTreeMap;

use mvcc::{Span, State, WatchId};
use store::watch::Hub;

use crate::invariants::watch_misses_nothing::{Gap, WatchedEvent};
use crate::random::Random;

pub(crate) struct Watchers {
    pub watchers: Vec<Watcher>,
    /// The watch hub of each live member.
    hubs: BTreeMap<usize, Hub>,
    skip_events: bool,
}

pub(crate) struct Watcher {
    pub span: Span,
    pub seen: Vec<WatchedEvent>,
    /// Revisions missed because of compaction errors.
    pub gaps: Vec<Gap>,
    next: i64,
    at: Option<Connection>,
}

/// A watcher at a member.
struct Connection {
    host: usize,
    watchers: store::watch::Watchers,
    id: WatchId,
}

/// Events per read: few, so that reads are interrupted often.
const BATCH: usize = 2;

impl Watchers {
    pub(crate) fn new(skip_events: bool) -> Self {
        let spans = [Span::prefix("key/"), Span::key("key/1"), Span::all()];
        let watcher = |span| Watcher { span, seen: Vec::new(), gaps: Vec::new(), next: 1, at: None };
        Self { watchers: spans.into_iter().map(watcher).collect(), hubs: BTreeMap::new(), skip_events }
    }

    /// Drops the connections of watchers to a member that went down.
    pub(crate) fn lose(&mut self, host: usize) {
        self.hubs.remove(&host);
        let lost = |watcher: &&mut Watcher| watcher.at.as_ref().is_some_and(|at| at.host == host);
        self.watchers.iter_mut().filter(lost).for_each(|watcher| watcher.at = None);
    }

    /// Publishes the member's state, connects watchers without a member at random, and lets connected ones read at
    /// random.
    pub(crate) fn poll(&mut self, host: usize, state: &State, random: &mut Random, eager: bool) {
        let hub = self.hubs.entry(host).or_default();
        hub.publish(state);
        for watcher in &mut self.watchers {
            if watcher.at.is_none() && (eager || random.percent(30)) {
                let mut watchers = hub.watchers();
                let id = watchers.add(watcher.span.clone(), watcher.next);
                watcher.at = Some(Connection { host, watchers, id });
            }
            let here = watcher.at.as_ref().is_some_and(|at| at.host == host);
            if here && (eager || random.percent(60)) {
                watcher.pull(state, self.skip_events && random.percent(5));
            }
        }
    }
}

impl Watcher {
    fn pull(&mut self, state: &State, skip: bool) {
        let Some(at) = &self.at else { return };
        while let Some((_, mark)) = at.watchers.try_ready() {
            self.next = self.next.max(mark);
            let batch = match state.event_batch(&self.span, self.next, BATCH) {
                Ok(batch) => batch,
                Err(mvcc::Error::Compacted { compact_revision }) => {
                    // The watcher lists at the current revision and watches from there.
                    self.gaps.push(Gap { from: self.next, to: state.revision(), compact_revision });
                    self.next = state.revision() + 1;
                    continue;
                }
                Err(error) => unreachable!("a watch fails only by compaction: {error}"),
            };
            let events = batch.events.iter().skip(usize::from(skip));
            self.seen.extend(events.map(|event| {
                let value = (!event.record.is_tombstone()).then(|| event.record.value().to_vec());
                (event.record.mod_revision, event.record.key().to_vec(), value)
            }));
            self.next = self.next.max(batch.next);
            if batch.more {
                at.watchers.again(at.id, batch.next);
            }
        }
    }
}
