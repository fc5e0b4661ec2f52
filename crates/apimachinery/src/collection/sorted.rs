//! A sorted set in two levels of shared chunks: a clone shares all chunks, a write copies one chunk and the list of
//! chunks.
//!
//! Two levels suffice for the objects that one process watches: for 100,000 objects the list has about 1,500 pointers,
//! which are copied only while a clone exists.

use std::cmp::Ordering;
use std::sync::Arc;

/// Maximum number of items in a chunk; a larger chunk is split.
const CHUNK_MAX: usize = 128;
/// A chunk with fewer items is merged with its neighbor if both fit into one.
const CHUNK_MIN: usize = CHUNK_MAX / 4;

/// An item with a total order; inserting an equal item replaces the old one.
pub(super) trait SortedItem: Clone {
    fn order(&self, other: &Self) -> Ordering;
}

#[derive(Clone)]
pub(super) struct SortedList<E> {
    chunks: Arc<Vec<Arc<Vec<E>>>>,
    len: usize,
}

pub(super) struct Iter<'a, E> {
    chunk: std::slice::Iter<'a, E>,
    rest: std::slice::Iter<'a, Arc<Vec<E>>>,
}

impl<'a, E> Iterator for Iter<'a, E> {
    type Item = &'a E;

    fn next(&mut self) -> Option<&'a E> {
        loop {
            if let Some(item) = self.chunk.next() {
                return Some(item);
            }
            self.chunk = self.rest.next()?.iter();
        }
    }
}

impl<E> Default for SortedList<E> {
    fn default() -> Self {
        Self { chunks: Arc::default(), len: 0 }
    }
}

impl<E: SortedItem> SortedList<E> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the item for which `probe` returns `Equal`; `probe` compares an item with the searched one.
    pub(super) fn find(&self, probe: impl Fn(&E) -> Ordering) -> Option<&E> {
        let chunk = &self.chunks[self.chunk_of(&probe)?];
        chunk.binary_search_by(&probe).ok().map(|at| &chunk[at])
    }

    /// Returns the items in order, from the first for which `before` is false. `before` must be true for a prefix of
    /// the order.
    pub(super) fn iter_from(&self, before: impl Fn(&E) -> bool) -> Iter<'_, E> {
        let skipped = self.chunks.partition_point(|chunk| chunk.last().is_some_and(&before));
        let (first, rest) = match &self.chunks[skipped..] {
            [] => (&[][..], &[][..]),
            [first, rest @ ..] => (&first[first.partition_point(&before)..], rest),
        };
        Iter { chunk: first.iter(), rest: rest.iter() }
    }

    pub(super) fn insert(&mut self, item: E) -> Option<E> {
        let probe = |have: &E| have.order(&item);
        let at = self.chunk_of(probe).unwrap_or(0);
        let chunks = Arc::make_mut(&mut self.chunks);
        if chunks.is_empty() {
            chunks.push(Arc::default());
        }
        let last = at + 1 == chunks.len();
        let chunk = Arc::make_mut(&mut chunks[at]);
        let position = match chunk.binary_search_by(probe) {
            Ok(position) => return Some(std::mem::replace(&mut chunk[position], item)),
            Err(position) => position,
        };
        chunk.insert(position, item);
        self.len += 1;
        if chunk.len() > CHUNK_MAX {
            // The objects of a list response are inserted in order: splitting in halves would leave chunks half empty.
            let appended = last && position + 1 == chunk.len();
            let right = chunk.split_off(if appended { CHUNK_MAX } else { CHUNK_MAX / 2 });
            chunks.insert(at + 1, Arc::new(right));
        }
        None
    }

    /// Changes an item without changing its order. Returns false if there is no such item.
    pub(super) fn update(&mut self, probe: impl Fn(&E) -> Ordering, change: impl FnOnce(&mut E)) -> bool {
        let Some(at) = self.chunk_of(&probe) else { return false };
        let Ok(position) = self.chunks[at].binary_search_by(&probe) else { return false };
        change(&mut Arc::make_mut(&mut Arc::make_mut(&mut self.chunks)[at])[position]);
        true
    }

    pub(super) fn remove(&mut self, probe: impl Fn(&E) -> Ordering) -> Option<E> {
        let at = self.chunk_of(&probe)?;
        let position = self.chunks[at].binary_search_by(&probe).ok()?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(&mut chunks[at]);
        let removed = chunk.remove(position);
        self.len -= 1;
        if chunk.is_empty() {
            chunks.remove(at);
        } else if chunk.len() < CHUNK_MIN {
            join(chunks, at);
        }
        Some(removed)
    }

    /// Returns the only chunk that can contain the item: the last one that does not start after it.
    fn chunk_of(&self, probe: impl Fn(&E) -> Ordering) -> Option<usize> {
        let after = self.chunks.partition_point(|chunk| chunk.first().is_some_and(|first| probe(first).is_le()));
        after.checked_sub(1)
    }
}

fn join<E: Clone>(chunks: &mut Vec<Arc<Vec<E>>>, at: usize) {
    let left = if at + 1 < chunks.len() { at } else { at.saturating_sub(1) };
    if chunks.len() > 1 && chunks[left].len() + chunks[left + 1].len() <= CHUNK_MAX {
        let right = chunks.remove(left + 1);
        Arc::make_mut(&mut chunks[left]).extend(right.iter().cloned());
    }
}
