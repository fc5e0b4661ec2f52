//! Shared informer caches: one cache and one watch per kind for all controllers.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use api::resources::preferred_version;
use apimachinery::meta::Meta;
use apimachinery::{GroupResource, Key, Resource, Value};
use client::Client;
use client::cache::{self, ClosedError, Reader, Snapshot, Source};
use controller::{Cache, KindSnapshot, Objects, index_by};
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::effect::Effect;
use crate::metadata_caches::MetadataCaches;

/// The caches of a process. Dropping this stops their watches.
pub struct Caches {
    readers: BTreeMap<GroupResource, Reader<Value>>,
    _watches: JoinSet<()>,
    client: Client,
    settings: cache::Settings,
    metadata_caches: OnceLock<(MetadataCaches, JoinSet<()>)>,
}

/// A controller declares an unknown kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a built-in kind")]
pub struct UnknownKind(pub GroupResource);

impl Caches {
    /// Starts one watch for each distinct kind.
    pub fn start(
        client: &Client,
        settings: &cache::Settings,
        kinds: impl IntoIterator<Item = GroupResource>,
    ) -> Result<Arc<Self>, UnknownKind> {
        let mut readers = BTreeMap::new();
        let mut watches = JoinSet::new();
        for kind in kinds {
            if readers.contains_key(&kind) {
                continue;
            }
            let resource = preferred_version(kind).ok_or(UnknownKind(kind))?;
            let source = Source::all(client.clone(), resource.clone());
            let (reflector, reader) = cache::new_shared(source, settings.clone(), index_by());
            watches.spawn(reflector.run().in_current_span());
            readers.insert(kind, reader);
        }
        let (client, settings) = (client.clone(), settings.clone());
        Ok(Arc::new(Self { readers, _watches: watches, client, settings, metadata_caches: OnceLock::new() }))
    }

    pub fn reader(&self, kind: GroupResource) -> Option<&Reader<Value>> {
        self.readers.get(&kind)
    }

    /// Returns a cached object.
    pub fn get(&self, kind: GroupResource, key: &Key) -> Option<Value> {
        self.reader(kind)?.get(key).map(|entry| entry.value.clone())
    }

    /// Returns the reader of a resource in any version.
    pub(crate) fn reader_of(&self, resource: &Resource) -> Option<&Reader<Value>> {
        self.readers.iter().find_map(|(kind, reader)| resource.is(*kind).then_some(reader))
    }

    /// Returns the metadata of objects of every kind. The watches start at the first call, because not every process
    /// needs them.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn metadata_caches(&self) -> &MetadataCaches {
        let (metadata_caches, _) = self.metadata_caches.get_or_init(|| {
            let metadata_caches = MetadataCaches::new(&self.client, self.settings.clone());
            let mut running = JoinSet::new();
            running.spawn(metadata_caches.clone().run().in_current_span());
            (metadata_caches, running)
        });
        metadata_caches
    }

    /// Waits until the caches of these kinds are complete.
    pub async fn synced(&self, kinds: &[GroupResource]) -> Result<(), ClosedError> {
        for kind in kinds {
            if let Some(reader) = self.reader(*kind) {
                reader.synced().await?;
            }
        }
        Ok(())
    }

    /// Waits until the caches show an effect. Returns immediately for a kind that is not cached, and if the cache has
    /// stopped: the process is then about to exit.
    pub(crate) async fn seen(&self, effect: &Effect) {
        match effect {
            Effect::Written { resource, revision } => {
                if let Some(reader) = self.reader_of(resource) {
                    let _ = reader.reached(*revision).await;
                }
            }
            Effect::Deleted { resource, key, uid } => {
                let Some(mut reader) = self.reader_of(resource).cloned() else { return };
                let is_there = |objects: &Objects| {
                    objects.get(key).map(Meta::of).is_some_and(|meta| !meta.is_deleting() && meta.uid() == uid)
                };
                while is_there(&reader.snapshot().objects) && reader.advanced().await.is_ok() {}
            }
        }
    }

    /// Returns the kinds whose caches are not complete yet.
    pub fn unsynced(&self) -> Vec<GroupResource> {
        let unsynced = self.readers.iter().filter(|(_, reader)| !reader.progress().synced);
        unsynced.map(|(kind, _)| *kind).collect()
    }

    /// Returns a controller's view of these kinds.
    pub fn view(&self, kinds: &[GroupResource]) -> Cache<'_> {
        Cache::new(kinds, |kind| match self.reader(kind) {
            Some(reader) => {
                let Snapshot { objects, revision } = reader.snapshot();
                KindSnapshot { objects, revision }
            }
            None => KindSnapshot { objects: Objects::new(index_by()), revision: 0 },
        })
    }
}
