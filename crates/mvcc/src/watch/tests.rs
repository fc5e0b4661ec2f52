//! A watcher that reads from its mark receives every change of its span once and in order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::State;
use crate::arbitrary::{command, span};

/// A watcher that reads at random times, a bounded number of events at a time.
struct Reader {
    span: Span,
    next: Revision,
    seen: Vec<(Revision, u32)>,
}

fn pull(set: &mut WatchSet, state: &State, id: WatchId, reader: &mut Reader, max: usize) {
    let Some(mark) = set.mark(id) else { return };
    let batch = state.event_batch(&reader.span, mark.max(reader.next), max).expect("the tail holds this many");
    reader.seen.extend(batch.events.iter().map(|event| (event.record.mod_revision, event.record.sub)));
    reader.next = batch.next;
    set.set_mark(id, batch.more.then_some(batch.next));
}

proptest! {
    #[test]
    fn watcher_receives_every_change_in_order(
        commands in prop::collection::vec(command(), 0..60),
        spans in prop::collection::vec(span(), 1..6),
        pulls in prop::collection::vec((0..6usize, 1..4usize), 60),
    ) {
        let mut state = State::new();
        let mut set = WatchSet::default();
        let mut readers = BTreeMap::new();
        for (id, span) in (0..).zip(spans) {
            set.add(id, span.clone(), None);
            readers.insert(id, Reader { span, next: 0, seen: Vec::new() });
        }
        let mut all = Vec::new();
        for ((index, command), (who, max)) in (1..).zip(&commands).zip(&pulls) {
            let before = state.revision();
            state.apply(index, command);
            for event in state.all_events(before + 1) {
                set.notice(event);
                all.push(event.clone());
            }
            if let Some(reader) = readers.get_mut(&(*who as u64)) {
                pull(&mut set, &state, *who as u64, reader, *max);
            }
        }
        for (id, reader) in &mut readers {
            while set.mark(*id).is_some() {
                pull(&mut set, &state, *id, reader, 2);
            }
            let expected: Vec<_> = all
                .iter()
                .filter(|event| reader.span.contains(event.record.key()))
                .map(|event| (event.record.mod_revision, event.record.sub))
                .collect();
            prop_assert_eq!(&reader.seen, &expected, "span {:?}", reader.span);
        }
    }
}

#[test]
fn removed_watcher_leaves_no_state() {
    let mut set = WatchSet::default();
    for (id, span) in (0..).zip([
        Span::key("a"),
        Span::prefix("a"),
        Span::prefix("a"),
        Span::from_wire("a".into(), "z".into()),
        Span::all(),
    ]) {
        set.add(id, span, Some(3));
    }
    assert_eq!(set.counts(), (5, 5));
    for id in 0..5 {
        set.remove(id);
    }
    assert_eq!(set.counts(), (0, 0));
    assert!(set.keys.is_empty() && set.prefixes.is_empty() && set.prefix_lengths.is_empty() && set.ranges.is_empty());
}
