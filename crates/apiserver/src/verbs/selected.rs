//! Which objects of a collection a request selects: by what the cache knows of them, or by what they are in its version.

use std::sync::Arc;

use api::kind::{Kind, Version};
use machinery::Value;
use machinery::status::Status;
use registry::selection::Selection;

use crate::cache::{Entry, Shelf};
use crate::conversion;
use crate::state::State;

/// An object of a collection.
pub struct Item {
    /// As it is stored.
    pub entry: Arc<Entry>,
    /// In the version of the request, once somebody needed it.
    pub object: Option<Value>,
}

/// What a request selects, and from where.
#[derive(Clone, Copy)]
pub struct Selecting<'a> {
    /// What every request works with.
    pub state: &'a State,
    /// The objects.
    pub shelf: &'a Shelf,
    /// Their kind.
    pub kind: &'a Kind,
    /// The version of the request.
    pub version: &'a Version,
    /// What is selected.
    pub selection: &'a Selection,
}

impl Selecting<'_> {
    /// Whether an entry may be selected; [`Self::settle`] has the last word. It is quick: the whole shelf waits for it.
    pub fn may_see(&self, entry: &Entry) -> bool {
        if self.is_by_version() {
            return self.selection.name().is_none_or(|name| name == entry.name());
        }
        self.knows(entry)
    }

    /// Those of the entries that are selected. Where they differ between versions, they are made what they are in the
    /// version of the request, all at once.
    pub async fn settle(&self, entries: Vec<Arc<Entry>>) -> Result<Vec<Item>, Status> {
        let mut items: Vec<_> = entries.into_iter().map(|entry| Item { entry, object: None }).collect();
        if self.is_by_version() {
            self.convert(&mut items, |entry| self.differs(entry)).await?;
            items.retain(|item| self.selects(&item.entry, item.object.as_ref()));
        }
        Ok(items)
    }

    /// Gives those items that are wanted their objects in the version of the request, all at once.
    pub async fn convert(&self, items: &mut [Item], wanted: impl Fn(&Entry) -> bool) -> Result<(), Status> {
        let without = |item: &&mut Item| item.object.is_none() && wanted(&item.entry);
        let items: Vec<&mut Item> = items.iter_mut().filter(without).collect();
        if items.is_empty() {
            return Ok(());
        }
        let stored = items.iter().map(|item| item.entry.object()).collect();
        let objects = conversion::read_all(self.state, self.kind, self.version, stored).await?;
        for (item, object) in items.into_iter().zip(objects) {
            item.object = Some(object);
        }
        Ok(())
    }

    /// Whether an entry is selected, of which this is the object in the version of the request, if it differs.
    pub fn selects(&self, entry: &Entry, object: Option<&Value>) -> bool {
        object.map_or_else(|| self.knows(entry), |object| self.selection.matches(self.kind, self.version, object))
    }

    /// Whether the version decides what is selected: a custom resource may have other fields in another version, and a
    /// webhook may give it other labels.
    pub fn is_by_version(&self) -> bool {
        let (kind, selection) = (self.kind, self.selection);
        kind.is_custom() && (selection.asks_content() || kind.converter.is_some() && selection.asks_labels())
    }

    /// Whether a custom resource is another in the version of the request than it is in the store.
    pub fn differs(&self, entry: &Entry) -> bool {
        self.kind.is_custom() && !conversion::is_servable(self.kind, self.version, entry)
    }

    /// Whether an entry is selected by what the cache knows of it as it is stored.
    fn knows(&self, entry: &Entry) -> bool {
        self.selection.matches_by(
            |label| entry.label(label),
            |field| match field {
                "metadata.name" => Some(entry.name()),
                "metadata.namespace" => Some(entry.namespace()),
                field => {
                    let number = self.shelf.selectable().iter().position(|one| one.name == field)?;
                    Some(entry.field(number))
                }
            },
        )
    }
}
