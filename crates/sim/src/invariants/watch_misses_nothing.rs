//! A watcher sees every change of its keys once, in order, over restarts of the members it asks, or is told what it cannot see.

use mvcc::{Span, State};

use super::Broken;

/// What a watcher keeps of an event.
pub type Seen = (i64, Vec<u8>, Option<Vec<u8>>);

/// Revisions that a watcher was told are compacted, in part.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// The first it asked for.
    pub from: i64,
    /// The last that it did not see.
    pub to: i64,
    /// What it was told.
    pub compact_revision: i64,
}

const NAME: &str = "a watch misses nothing";

/// Compares what a watcher saw with what happened, given how far there was a compaction.
pub fn check(
    watcher: usize,
    span: &Span,
    (seen, gaps): (&[Seen], &[Gap]),
    state: &State,
    compacted: i64,
) -> Result<(), Broken> {
    if let Some(gap) = gaps.iter().find(|gap| gap.from > gap.compact_revision || gap.compact_revision > compacted) {
        return Err((NAME, format!("watcher {watcher} was cut off for nothing: {gap:?}, compacted is {compacted}")));
    }
    let hidden = |revision: i64| gaps.iter().any(|gap| (gap.from..=gap.to).contains(&revision));
    let concerns = |event: &&mvcc::Event| span.contains(event.record.key()) && !hidden(event.record.mod_revision);
    let happened = state.all_events(0).filter(concerns).map(|event| {
        let value = (!event.record.is_tombstone()).then(|| event.record.value().to_vec());
        (event.record.mod_revision, event.record.key().to_vec(), value)
    });
    let happened: Vec<Seen> = happened.collect();
    if seen == happened {
        return Ok(());
    }
    let differ =
        seen.iter().zip(&happened).position(|(one, other)| one != other).unwrap_or(seen.len().min(happened.len()));
    let what = format!(
        "watcher {watcher} saw {} events of {}; they differ at {differ}: saw {:?}, happened {:?}",
        seen.len(),
        happened.len(),
        seen.get(differ),
        happened.get(differ)
    );
    Err((NAME, what))
}
