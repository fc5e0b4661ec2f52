//! A watcher sees every change of its keys once, in order, over restarts of the members it asks.

use mvcc::{Span, State};

use super::Broken;

/// What a watcher keeps of an event.
pub type Seen = (i64, Vec<u8>, Option<Vec<u8>>);

/// Compares what a watcher saw with what happened.
pub fn check(watcher: usize, span: &Span, seen: &[Seen], state: &State) -> Result<(), Broken> {
    let happened = state.all_events(0).filter(|event| span.contains(event.record.key())).map(|event| {
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
    Err(("a watch misses nothing", what))
}
