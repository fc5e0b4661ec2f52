//! Schemas of every built-in API type.
//!
//! `cargo xtask catalogue` generates them as `catalogue.txt`, which is parsed on first use.

mod load;

use std::sync::OnceLock;

use apimachinery::schema::{Schema, Shape, TypeId, Types};
use apimachinery::{GroupVersion, GroupVersionKind};

pub fn schema(kind: &GroupVersionKind) -> Option<Schema<'static>> {
    open().schema(kind)
}

/// Returns the schema for an `apiVersion` and `kind`. An empty `apiVersion` means `v1`: discovery documents of the core
/// group have none.
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

/// Returns every kind with its schema, ordered by group, version and kind.
pub fn kinds() -> impl ExactSizeIterator<Item = (&'static GroupVersionKind, Schema<'static>)> {
    let catalogue = open();
    catalogue.kinds.iter().map(|(kind, id)| (kind, catalogue.types.schema(*id)))
}

/// Whether a built-in kind has this group version.
pub fn has_version(version: &GroupVersion) -> bool {
    let kinds = &open().kinds;
    let at = kinds.partition_point(|(kind, _)| (&kind.group, &kind.version) < (&version.group, &version.version));
    kinds.get(at).is_some_and(|(kind, _)| kind.group == version.group && kind.version == version.version)
}

/// A named type.
#[derive(Clone, Copy, Debug)]
pub struct NamedType {
    /// The Go package: `k8s.io/api/core/v1`.
    pub package: &'static str,
    /// The Go name: `Pod`.
    pub name: &'static str,
    /// The type as declared. A field of this type may override the merge strategy.
    pub schema: Schema<'static>,
}

/// Returns the declaration of a named type.
pub fn declared(schema: Schema<'static>) -> Option<NamedType> {
    let catalogue = open();
    let id = catalogue.base(schema.id()).unwrap_or_else(|| schema.id());
    let (package, name) = *catalogue.names.get(usize::from(id))?;
    Some(NamedType { package, name, schema: catalogue.types.schema(id) })
}

/// Returns the merge strategy that a use of this type sets explicitly: `atomic` or `granular`.
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

/// Parses the catalogue again, for benchmarks.
pub fn load() -> Catalogue {
    load::catalogue(include_str!("catalogue.txt"))
}

/// Parses types that no API serves, such as component configuration. `text` is compiled in and follows the grammar of
/// `catalogue.txt`.
pub fn read(text: &'static str) -> Catalogue {
    load::catalogue(text)
}

#[derive(Debug)]
pub struct Catalogue {
    types: Types,
    kinds: Vec<(GroupVersionKind, TypeId)>,
    /// Package and name of each declared type. Declared types have the lowest IDs.
    names: Vec<(&'static str, &'static str)>,
    /// Variants that differ from a declared type only in their merge strategy, each with that type.
    variants: Vec<(TypeId, TypeId)>,
    /// Lists declared as atomic, in ascending order.
    atomic_lists: Vec<TypeId>,
}

impl Catalogue {
    fn base(&self, id: TypeId) -> Option<TypeId> {
        self.variants.iter().find(|(variant, _)| *variant == id).map(|(_, base)| *base)
    }
}

impl Catalogue {
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
