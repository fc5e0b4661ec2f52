//! The facts about every built-in API type, as a schema for each kind.
//!
//! The facts are `catalogue.txt`, which `cargo xtask catalogue` writes. They are read once, when first asked for.

mod load;

use std::sync::OnceLock;

use machinery::schema::{Schema, TypeId, Types};
use machinery::{GroupVersion, GroupVersionKind};

/// The schema of a kind.
pub fn schema(kind: &GroupVersionKind) -> Option<Schema<'static>> {
    open().schema(kind)
}

/// Every kind with its schema, in the order of group, version and kind.
pub fn kinds() -> impl ExactSizeIterator<Item = (&'static GroupVersionKind, Schema<'static>)> {
    let catalogue = open();
    catalogue.kinds.iter().map(|(kind, id)| (kind, catalogue.types.schema(*id)))
}

/// Whether any kind of this group version is built in.
pub fn has_version(version: &GroupVersion) -> bool {
    let kinds = &open().kinds;
    let at = kinds.partition_point(|(kind, _)| (&kind.group, &kind.version) < (&version.group, &version.version));
    kinds.get(at).is_some_and(|(kind, _)| kind.group == version.group && kind.version == version.version)
}

/// Reads the facts afresh. Only of use to those who measure how long it takes.
pub fn load() -> Catalogue {
    load::catalogue(include_str!("catalogue.txt"))
}

/// Reads facts about types that no API serves, such as those of a component's configuration file. The text is part of the
/// program and follows the grammar of `catalogue.txt`.
pub fn read(text: &'static str) -> Catalogue {
    load::catalogue(text)
}

/// All types and kinds.
#[derive(Debug)]
pub struct Catalogue {
    types: Types,
    kinds: Vec<(GroupVersionKind, TypeId)>,
}

impl Catalogue {
    /// The schema of a kind.
    pub fn schema(&self, kind: &GroupVersionKind) -> Option<Schema<'_>> {
        let at = self.kinds.binary_search_by(|(have, _)| have.cmp(kind)).ok()?;
        Some(self.types.schema(self.kinds[at].1))
    }
}

fn open() -> &'static Catalogue {
    static CATALOGUE: OnceLock<Catalogue> = OnceLock::new();
    CATALOGUE.get_or_init(load)
}

#[cfg(test)]
mod tests;
