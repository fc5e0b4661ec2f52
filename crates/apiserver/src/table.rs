//! The kinds that are served now, found by what a URL names.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::kind::Kind;

/// The kinds that are served now.
#[derive(Clone, Debug, Default)]
pub struct Table {
    by_plural: BTreeMap<(String, String), Arc<Kind>>,
    /// All rows, in the order of discovery.
    pub kinds: Vec<Arc<Kind>>,
}

/// What a URL leads to.
pub enum Found {
    /// A kind in a version that is served.
    Kind(Arc<Kind>),
    /// The group is served, this resource or version is not.
    NotServed,
    /// Nothing of that group is served.
    NoGroup,
}

impl Table {
    /// A table of these rows.
    pub fn new(kinds: Vec<Arc<Kind>>) -> Self {
        let by_plural = kinds.iter().map(|kind| ((kind.group.to_string(), kind.plural.to_string()), kind.clone()));
        Self { by_plural: by_plural.collect(), kinds }
    }

    /// What a group, version and plural name lead to.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Found {
        let key = (group.to_owned(), plural.to_owned());
        match self.by_plural.get(&key).filter(|kind| kind.version(version).is_some_and(|version| version.served)) {
            Some(kind) => Found::Kind(kind.clone()),
            None if self.has_group(group) => Found::NotServed,
            None => Found::NoGroup,
        }
    }

    /// The row of a resource, in whatever version.
    pub fn kind(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.by_plural.get(&(group.to_owned(), plural.to_owned()))
    }

    fn has_group(&self, group: &str) -> bool {
        self.kinds.iter().any(|kind| kind.group == group && kind.versions.iter().any(|version| version.served))
    }
}
