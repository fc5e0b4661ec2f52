//! Label and field selection: by the indexed values of cache entries, or by the object in the requested version.

use std::sync::Arc;

use api::kind::{Kind, Selectable, Version};
use api_registry::selection::Selection;
use apimachinery::Value;
use apimachinery::status::Status;

use crate::conversion;
use crate::state::State;
use crate::watch_cache::{Entry, KindCache};

/// An object of a collection.
pub(super) struct Item {
    /// The cache entry in the storage version.
    pub entry: Arc<Entry>,
    /// The object in the request's version, if it was converted.
    pub object: Option<Value>,
}

/// A selection and its source.
#[derive(Clone, Copy)]
pub(super) struct Selecting<'a> {
    pub state: &'a State,
    pub kind_cache: &'a KindCache,
    pub kind: &'a Kind,
    /// The request's version.
    pub version: &'a Version,
    pub selection: &'a Selection,
}

impl Selecting<'_> {
    /// Whether an entry may be selected; [`Self::select`] makes the final decision. Must be fast, because it runs under
    /// the lock of the kind cache.
    pub(super) fn may_see(&self, entry: &Entry) -> bool {
        if self.is_by_version() {
            return self.selection.name().is_none_or(|name| name == entry.name());
        }
        self.knows(entry)
    }

    /// Returns the selected entries. If versions can differ in the selected values, the objects are first converted to
    /// the request's version, all in one call.
    pub(super) async fn select(&self, entries: Vec<Arc<Entry>>) -> Result<Vec<Item>, Status> {
        let mut items: Vec<_> = entries.into_iter().map(|entry| Item { entry, object: None }).collect();
        if self.is_by_version() {
            self.convert(&mut items, |entry| self.differs(entry)).await?;
            items.retain(|item| self.selects(&item.entry, item.object.as_ref()));
        }
        Ok(items)
    }

    /// Converts the items that `predicate` accepts to the request's version, all in one call.
    pub(super) async fn convert(&self, items: &mut [Item], predicate: impl Fn(&Entry) -> bool) -> Result<(), Status> {
        let without = |item: &&mut Item| item.object.is_none() && predicate(&item.entry);
        let items: Vec<&mut Item> = items.iter_mut().filter(without).collect();
        if items.is_empty() {
            return Ok(());
        }
        let stored = items.iter().map(|item| item.entry.object()).collect();
        let objects = conversion::read_all(&self.state.storage, self.kind, self.version, stored).await?;
        for (item, object) in items.into_iter().zip(objects) {
            item.object = Some(object);
        }
        Ok(())
    }

    /// Whether an entry is selected. `object` is the object in the request's version, if it differs.
    pub(super) fn selects(&self, entry: &Entry, object: Option<&Value>) -> bool {
        object.map_or_else(|| self.knows(entry), |object| self.selection.matches(self.kind, self.version, object))
    }

    /// Whether the selection depends on the version: a custom resource can have other fields in another version, and a
    /// webhook can change its labels.
    pub(super) fn is_by_version(&self) -> bool {
        let (kind, selection) = (self.kind, self.selection);
        kind.is_custom() && (selection.selects_content() || kind.converter.is_some() && selection.selects_labels())
    }

    /// Whether a custom resource in the request's version differs from the stored one.
    pub(super) fn differs(&self, entry: &Entry) -> bool {
        self.kind.is_custom() && !conversion::is_servable(self.kind, self.version, entry)
    }

    /// Whether the values in the cache entry match the selection.
    fn knows(&self, entry: &Entry) -> bool {
        self.selection.matches_by(
            |label| entry.label(label),
            |field| match field {
                "metadata.name" => Some(entry.name()),
                "metadata.namespace" => Some(entry.namespace()),
                field => {
                    let index = self.cached_fields().iter().position(|one| one.name == field)?;
                    Some(entry.field(index))
                }
            },
        )
    }

    /// Returns the fields whose values a cache entry has, with the names of the requested kind. Events of both API
    /// groups share one cache: their selectable fields have different names and the same order.
    fn cached_fields(&self) -> &[Selectable] {
        if self.kind.is_custom() { self.kind_cache.selectable() } else { &self.kind.selectable }
    }
}
