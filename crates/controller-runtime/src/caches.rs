//! Shared informer caches: one cache and one watch per kind for all controllers.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use apimachinery::Value;
use apimachinery::meta::Meta;
use client::Client;
use client::cache::{self, ClosedError, Reader, Snapshot, Source};
use controller::{Cache, Configs, KindSnapshot, Objects, index_by, kinds};
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::effect::Effect;
use crate::metadata_caches::MetadataCaches;

/// The caches of a process. Dropping this stops their watches.
pub struct Caches {
    readers: BTreeMap<String, Reader<Value>>,
    configs: Configs,
    _watches: JoinSet<()>,
    client: Client,
    settings: cache::Settings,
    metadata_caches: OnceLock<(MetadataCaches, JoinSet<()>)>,
}

/// A controller declares an unknown kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown kind {0:?}")]
pub struct UnknownKind(pub String);

impl Caches {
    /// Starts one watch for each distinct kind.
    pub fn start<'a>(
        client: &Client,
        settings: &cache::Settings,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Arc<Self>, UnknownKind> {
        Self::configured(client, settings, names, Configs::default())
    }

    /// Like [`Caches::start`], with the controllers' configurations.
    pub fn configured<'a>(
        client: &Client,
        settings: &cache::Settings,
        names: impl IntoIterator<Item = &'a str>,
        configs: Configs,
    ) -> Result<Arc<Self>, UnknownKind> {
        let mut readers = BTreeMap::new();
        let mut watches = JoinSet::new();
        for name in names {
            if readers.contains_key(name) {
                continue;
            }
            let resource = kinds::by_name(name).ok_or_else(|| UnknownKind(name.to_owned()))?;
            let source = Source::all(client.clone(), resource.clone());
            let (reflector, reader) = cache::new_shared(source, settings.clone(), index_by());
            watches.spawn(reflector.run().in_current_span());
            readers.insert(name.to_owned(), reader);
        }
        let (client, settings) = (client.clone(), settings.clone());
        Ok(Arc::new(Self { readers, configs, _watches: watches, client, settings, metadata_caches: OnceLock::new() }))
    }

    pub fn reader(&self, kind: &str) -> Option<&Reader<Value>> {
        self.readers.get(kind)
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
    pub async fn synced(&self, kinds: &[&str]) -> Result<(), ClosedError> {
        for kind in kinds {
            if let Some(reader) = self.reader(kind) {
                reader.synced().await?;
            }
        }
        Ok(())
    }

    /// Waits until the caches show an effect. Returns immediately for a kind that is not cached, and if the cache has
    /// stopped: the process is then about to exit.
    pub(crate) async fn seen(&self, effect: &Effect) {
        match effect {
            Effect::Written { kind, revision } => {
                if let Some(reader) = self.reader(kind) {
                    let _ = reader.reached(*revision).await;
                }
            }
            Effect::Deleted { kind, key, uid } => {
                let Some(mut reader) = self.reader(kind).cloned() else { return };
                let is_there = |objects: &Objects| {
                    objects.get(key).map(Meta::of).is_some_and(|meta| !meta.is_deleting() && meta.uid() == uid)
                };
                while is_there(&reader.snapshot().objects) && reader.advanced().await.is_ok() {}
            }
        }
    }

    /// Returns the kinds whose caches are not complete yet.
    pub fn unsynced(&self) -> Vec<&str> {
        let unsynced = self.readers.iter().filter(|(_, reader)| !reader.progress().synced);
        unsynced.map(|(kind, _)| kind.as_str()).collect()
    }

    pub const fn configs(&self) -> &Configs {
        &self.configs
    }

    /// Returns a controller's view of these kinds.
    pub fn view(&self, kinds: &[&'static str]) -> Cache<'_> {
        let view = Cache::new(kinds, |kind| match self.reader(kind) {
            Some(reader) => {
                let Snapshot { objects, revision } = reader.snapshot();
                KindSnapshot { objects, revision }
            }
            None => KindSnapshot { objects: Objects::new(index_by()), revision: 0 },
        });
        view.configured(self.configs.clone())
    }
}
