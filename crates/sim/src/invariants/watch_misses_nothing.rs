//! Invariant: a watcher receives every change of its keys once and in order, or a compaction error.

use mvcc::{Span, State};

use super::Violation;

/// The recorded part of an event: revision, key, value.
pub type WatchedEvent = (i64, Vec<u8>, Option<Vec<u8>>);

/// Revisions that a watcher could not read because of a compaction error.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// The first requested revision.
    pub from: i64,
    /// The last unread revision.
    pub to: i64,
    /// The compact revision in the error.
    pub compact_revision: i64,
}

const NAME: &str = "a watch receives every change";

/// Compares the received events with the history, given the last compaction.
pub fn check(
    watcher: usize,
    span: &Span,
    (seen, gaps): (&[WatchedEvent], &[Gap]),
    state: &State,
    compacted: i64,
) -> Result<(), Violation> {
    if let Some(gap) = gaps.iter().find(|gap| gap.from > gap.compact_revision || gap.compact_revision > compacted) {
        return Err((NAME, format!("watcher {watcher} was cancelled wrongly: {gap:?}, compacted is {compacted}")));
    }
    let hidden = |revision: i64| gaps.iter().any(|gap| (gap.from..=gap.to).contains(&revision));
    let is_watched = |event: &&mvcc::Event| span.contains(event.record.key()) && !hidden(event.record.mod_revision);
    let expected = state.all_events(0).filter(is_watched).map(|event| {
        let value = (!event.record.is_tombstone()).then(|| event.record.value().to_vec());
        (event.record.mod_revision, event.record.key().to_vec(), value)
    });
    let expected: Vec<WatchedEvent> = expected.collect();
    if seen == expected {
        return Ok(());
    }
    let differ =
        seen.iter().zip(&expected).position(|(one, other)| one != other).unwrap_or(seen.len().min(expected.len()));
    let what = format!(
        "watcher {watcher} saw {} events of {}; they differ at {differ}: saw {:?}, happened {:?}",
        seen.len(),
        expected.len(),
        seen.get(differ),
        expected.get(differ)
    );
    Err((NAME, what))
}
