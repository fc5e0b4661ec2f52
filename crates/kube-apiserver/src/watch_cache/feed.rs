//! Watch cache feed: the only writer of the cache, which watches the entire store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use apimachinery::Str;
use client::shared_objects::SharedObject;
use mvcc::{Range, Revision, Span};

use super::{Cache, Entry, KindCache};
use crate::encrypted_store::{self, Store, StoredValue};
use crate::storage_format::Layout;

/// Delay before the store is read again after its watch was lost.
const RETRY: Duration = Duration::from_millis(100);

/// Feeds the cache until the process exits. When the watch closes (the store is unreachable, or its history was
/// compacted meanwhile), all kind caches are filled from the store again.
pub async fn run(cache: Arc<Cache>, store: Arc<Store>, layout: Layout) {
    loop {
        if let Err(error) = feed(&cache, &store, &layout).await {
            tracing::warn!(%error, "the watch of the store closed; filling the watch cache again");
        }
        cache.fed.store(false, Ordering::Relaxed);
        tokio::time::sleep(RETRY).await;
    }
}

async fn feed(cache: &Cache, store: &Store, layout: &Layout) -> Result<(), encrypted_store::Error> {
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
            () = cache.progress_request.notified() => {
                watch.request_progress().await?;
                continue;
            }
            () = cache.made.notified() => {
                fill_late(cache, store, layout).await?;
                continue;
            }
        };
        let mut touched: Vec<Arc<KindCache>> = Vec::new();
        for kind_cache in batch.changes.iter().filter_map(|found| take(cache, layout, found)) {
            if !touched.iter().any(|have| Arc::ptr_eq(have, &kind_cache)) {
                touched.push(kind_cache);
            }
        }
        // A batch without a revision must not set the cache back.
        cache.reached.send_if_modified(|reached| {
            let moved = batch.revision > *reached;
            *reached = (*reached).max(batch.revision);
            moved
        });
        touched.iter().for_each(|kind_cache| kind_cache.notify());
    }
}

/// Resets every kind cache to the state of `revision`.
fn fill(cache: &Cache, layout: &Layout, all: &[StoredValue], revision: Revision) {
    let kind_caches = cache.kind_caches.read().expect("no holder panics");
    let mut found: BTreeMap<&str, BTreeMap<Str, Arc<Entry>>> = BTreeMap::new();
    for one in all {
        let Some((prefix, key)) = below(layout, one).and_then(|key| split(&kind_caches, key)) else { continue };
        if let Some((entry, _)) = entry(&kind_caches[prefix], key, one) {
            found.entry(prefix).or_default().insert(entry.key.clone(), entry);
        }
    }
    for (prefix, kind_cache) in kind_caches.iter() {
        kind_cache.reset(found.remove(prefix.as_str()).unwrap_or_default(), revision);
    }
}

/// Fills kind caches that were created since the initial fill, at the revision that the others have reached. Later
/// changes reach all of them through the watch.
async fn fill_late(cache: &Cache, store: &Store, layout: &Layout) -> Result<(), encrypted_store::Error> {
    let made = std::mem::take(&mut *cache.unfilled.lock().expect("no holder panics"));
    let revision = cache.reached();
    for prefix in made {
        let span = Span::prefix(format!("{}/{prefix}/", layout.root).into_bytes());
        let (found, _) = store.range(Range { revision, ..Range::of(span) }).await?;
        let kind_cache = cache.kind_caches.read().expect("no holder panics").get(&prefix).cloned();
        let Some(kind_cache) = kind_cache else { continue };
        let entries = found.iter().filter_map(|one| {
            let key = below(layout, one)?.strip_prefix(&prefix)?.strip_prefix('/')?;
            entry(&kind_cache, key, one).map(|(entry, _)| (entry.key.clone(), entry))
        });
        kind_cache.reset(entries.collect(), revision);
    }
    Ok(())
}

/// Applies a change and returns the cache of its kind.
fn take(cache: &Cache, layout: &Layout, found: &StoredValue) -> Option<Arc<KindCache>> {
    let kind_caches = cache.kind_caches.read().expect("no holder panics");
    let (prefix, key) = below(layout, found).and_then(|key| split(&kind_caches, key))?;
    let kind_cache = &kind_caches[prefix];
    let (entry, object) = entry(kind_cache, key, found).unzip();
    object.into_iter().for_each(|object| cache.changed(object));
    kind_cache.change(key, entry, found.revision);
    Some(kind_cache.clone())
}

/// Splits a key below the root into the prefix of its kind, which has one or two path segments, and the rest.
fn split<'k>(kind_caches: &BTreeMap<String, Arc<KindCache>>, key: &'k str) -> Option<(&'k str, &'k str)> {
    let cuts: Vec<usize> = key.match_indices('/').map(|(at, _)| at).take(2).collect();
    let cut = cuts.into_iter().rev().find(|cut| kind_caches.contains_key(&key[..*cut]))?;
    Some((&key[..cut], &key[cut + 1..]))
}

/// Returns the key below the root.
fn below<'f>(layout: &Layout, found: &'f StoredValue) -> Option<&'f str> {
    std::str::from_utf8(&found.key).ok()?.strip_prefix(&layout.root)?.strip_prefix('/')
}

/// Returns the entry of a store record and its decoded object, or `None` for a deletion. An unreadable object is logged
/// and treated as absent.
// DEVIATION: a list omits stored objects that cannot be decrypted or decoded, and the log names them; upstream fails
// the list.
fn entry(kind_cache: &KindCache, key: &str, found: &StoredValue) -> Option<(Arc<Entry>, SharedObject)> {
    let unreadable = |error: &dyn std::fmt::Display| {
        tracing::error!(key, %error, "failed to decode an object in the store");
    };
    let value = found.value.as_ref().map_err(|error| unreadable(error)).ok()?.clone()?;
    let read = Entry::read(key, value, found.revision, kind_cache.selectable());
    read.map_err(|error| unreadable(&error)).ok().map(|(entry, object)| (Arc::new(entry), object))
}
