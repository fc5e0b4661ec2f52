//! The one writer of the cache: a watch of everything in the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use client::held::Held;
use machinery::Str;
use mvcc::{Range, Revision, Span};

use super::{Cache, Entry, Shelf};
use crate::sealed::{self, Found, Store};
use crate::storage::Layout;

/// After the store was lost, the cache waits so long before it looks again.
const RETRY: Duration = Duration::from_millis(100);

/// Feeds the cache for as long as the process lives. When the watch ends (the store is lost, or history was compacted
/// while it was) everything is read anew.
pub async fn run(cache: Arc<Cache>, store: Arc<Store>, layout: Layout) {
    loop {
        if let Err(error) = feed(&cache, &store, &layout).await {
            tracing::warn!(%error, "the watch of the store ended; reading everything anew");
        }
        cache.fed.store(false, Ordering::Relaxed);
        tokio::time::sleep(RETRY).await;
    }
}

async fn feed(cache: &Cache, store: &Store, layout: &Layout) -> Result<(), sealed::Error> {
    let (found, revision) = store.range(Range::of(layout.all())).await?;
    fill(cache, layout, &found, revision);
    let mut watch = store.watch(layout.all(), revision + 1).await?;
    cache.reached.send_replace(revision);
    drop(found);
    fill_late(cache, store, layout).await?;
    cache.fed.store(true, Ordering::Relaxed);
    loop {
        let batch = tokio::select! {
            batch = store.next(&mut watch) => batch?,
            () = cache.nudge.notified() => {
                watch.request_progress().await?;
                continue;
            }
            () = cache.made.notified() => {
                fill_late(cache, store, layout).await?;
                continue;
            }
        };
        let mut touched: Vec<Arc<Shelf>> = Vec::new();
        for shelf in batch.changes.iter().filter_map(|found| take(cache, layout, found)) {
            if !touched.iter().any(|have| Arc::ptr_eq(have, &shelf)) {
                touched.push(shelf);
            }
        }
        // A batch without a revision of its own must not set the cache back.
        cache.reached.send_if_modified(|reached| {
            let moved = batch.revision > *reached;
            *reached = (*reached).max(batch.revision);
            moved
        });
        touched.iter().for_each(|shelf| shelf.tell());
    }
}

/// Puts every shelf into the state of `revision`.
fn fill(cache: &Cache, layout: &Layout, all: &[Found], revision: Revision) {
    let shelves = cache.shelves.read().expect("no holder panics");
    let mut found: BTreeMap<&str, BTreeMap<Str, Arc<Entry>>> = BTreeMap::new();
    for one in all {
        let Some((prefix, key)) = below(layout, one).and_then(|key| split(&shelves, key)) else { continue };
        if let Some((entry, _)) = entry(&shelves[prefix], key, one) {
            found.entry(prefix).or_default().insert(entry.key.clone(), entry);
        }
    }
    for (prefix, shelf) in shelves.iter() {
        shelf.reset(found.remove(prefix.as_str()).unwrap_or_default(), revision);
    }
}

/// Fills shelves that were made since, with what the store had at the revision that the others have reached: the changes
/// after it come to all of them.
async fn fill_late(cache: &Cache, store: &Store, layout: &Layout) -> Result<(), sealed::Error> {
    let made = std::mem::take(&mut *cache.unfilled.lock().expect("no holder panics"));
    let revision = cache.reached();
    for prefix in made {
        let span = Span::prefix(format!("{}/{prefix}/", layout.root).into_bytes());
        let (found, _) = store.range(Range { revision, ..Range::of(span) }).await?;
        let shelf = cache.shelves.read().expect("no holder panics").get(&prefix).cloned();
        let Some(shelf) = shelf else { continue };
        let entries = found.iter().filter_map(|one| {
            let key = below(layout, one)?.strip_prefix(&prefix)?.strip_prefix('/')?;
            entry(&shelf, key, one).map(|(entry, _)| (entry.key.clone(), entry))
        });
        shelf.reset(entries.collect(), revision);
    }
    Ok(())
}

/// Takes in a change, and gives the shelf that it came to.
fn take(cache: &Cache, layout: &Layout, found: &Found) -> Option<Arc<Shelf>> {
    let shelves = cache.shelves.read().expect("no holder panics");
    let (prefix, key) = below(layout, found).and_then(|key| split(&shelves, key))?;
    let shelf = &shelves[prefix];
    let (entry, object) = entry(shelf, key, found).unzip();
    object.into_iter().for_each(|object| cache.changed(object));
    shelf.change(key, entry, found.revision);
    Some(shelf.clone())
}

/// The prefix of the kind that a key below the root belongs to, and the rest. A prefix has one part or two.
fn split<'k>(shelves: &BTreeMap<String, Arc<Shelf>>, key: &'k str) -> Option<(&'k str, &'k str)> {
    let cuts: Vec<usize> = key.match_indices('/').map(|(at, _)| at).take(2).collect();
    let cut = cuts.into_iter().rev().find(|cut| shelves.contains_key(&key[..*cut]))?;
    Some((&key[..cut], &key[cut + 1..]))
}

/// The key below the root.
fn below<'f>(layout: &Layout, found: &'f Found) -> Option<&'f str> {
    std::str::from_utf8(&found.key).ok()?.strip_prefix(&layout.root)?.strip_prefix('/')
}

/// The entry of what was found and the object that was read for it, none if it was deleted. One that cannot be read is as
/// good as absent to clients, and said to the operator.
// DEVIATION: a list leaves out stored objects that cannot be decrypted or read, and the log names them; upstream fails the list.
fn entry(shelf: &Shelf, key: &str, found: &Found) -> Option<(Arc<Entry>, Held)> {
    let unreadable = |error: &dyn std::fmt::Display| {
        tracing::error!(key, %error, "an object in the store cannot be read");
    };
    let value = found.value.as_ref().map_err(|error| unreadable(error)).ok()?.clone()?;
    let read = Entry::read(key, value, found.revision, shelf.selectable());
    read.map_err(|error| unreadable(&error)).ok().map(|(entry, object)| (Arc::new(entry), object))
}
