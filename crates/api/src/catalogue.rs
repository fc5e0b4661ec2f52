//! The facts about every built-in API type, as a schema for each kind.
//!
//! The facts are `catalogue.txt`, which `cargo xtask catalogue` writes. They are read once, when first asked for.

mod load;

use std::sync::OnceLock;

use machinery::schema::{Schema, Shape, TypeId, Types};
use machinery::{GroupVersion, GroupVersionKind};

/// The schema of a kind.
pub fn schema(kind: &GroupVersionKind) -> Option<Schema<'static>> {
    open().schema(kind)
}

/// The schema of what says `apiVersion` and `kind` of itself. The documents of discovery of the core group say no
/// `apiVersion`, and are of `v1`.
pub fn find(api_version: &str, kind: &str) -> Option<Schema<'static>> {
    let (group, version) = match api_version {
        "" => ("", "v1"),
        core_or_group => core_or_group.split_once('/').unwrap_or(("", core_or_group)),
    };
    let catalogue = open();
    let found = catalogue.kinds.binary_search_by(|(have, _)| {
        (have.group.as_str(), have.version.as_str(), have.kind.as_str()).cmp(&(group, version, kind))
    });
    found.ok().map(|at| catalogue.types.schema(catalogue.kinds[at].1))
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

/// A type that has a name of its own.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// Its Go package: `k8s.io/api/core/v1`.
    pub package: &'static str,
    /// `Pod`.
    pub name: &'static str,
    /// The type as it is declared. Where it is used it may differ in how apply merges it.
    pub schema: Schema<'static>,
}

/// The declaration of a type, if it has a name of its own.
pub fn declared(schema: Schema<'static>) -> Option<Declared> {
    let catalogue = open();
    let id = catalogue.base(schema.id()).unwrap_or_else(|| schema.id());
    let (package, name) = *catalogue.names.get(usize::from(id))?;
    Some(Declared { package, name, schema: catalogue.types.schema(id) })
}

/// What a field or an item of this type says about merging beyond what its type says by itself: `atomic`, `granular`.
pub fn merge_word(schema: Schema<'static>) -> Option<&'static str> {
    let catalogue = open();
    let id = schema.id();
    let as_one = match schema.shape() {
        Shape::List(_) => return catalogue.atomic_lists.binary_search(&id).ok().map(|_| "atomic"),
        Shape::Map(map) if map.atomic => return Some("atomic"),
        Shape::Struct(shape) => shape.atomic,
        _ => return None,
    };
    catalogue.base(id).map(|_| if as_one { "atomic" } else { "granular" })
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
    /// The package and name of each declared type; those have the first numbers.
    names: Vec<(&'static str, &'static str)>,
    /// Types that differ from a declared one only in how apply merges them, with those.
    variants: Vec<(TypeId, TypeId)>,
    /// Lists that say that they are one value, ascending.
    atomic_lists: Vec<TypeId>,
}

impl Catalogue {
    fn base(&self, id: TypeId) -> Option<TypeId> {
        self.variants.iter().find(|(variant, _)| *variant == id).map(|(_, base)| *base)
    }
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
