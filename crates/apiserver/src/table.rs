//! The kinds that are served now, found by what a URL names.

use std::sync::Arc;

use api::kind::Kind;

/// The kinds that are served now.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Sorted by plural name and group, of which each is there once.
    by_plural: Vec<Arc<Kind>>,
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
        let mut by_plural = kinds.clone();
        by_plural.sort_by(|a, b| place(a).cmp(&place(b)));
        // Of several rows of one name the last counts.
        by_plural.reverse();
        by_plural.dedup_by(|a, b| place(a) == place(b));
        by_plural.reverse();
        Self { by_plural, kinds }
    }

    /// What a group, version and plural name lead to.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Found {
        match self.kind(group, plural).filter(|kind| kind.version(version).is_some_and(|version| version.served)) {
            Some(kind) => Found::Kind(kind.clone()),
            None if self.has_group(group) => Found::NotServed,
            None => Found::NoGroup,
        }
    }

    /// The row of a resource, in whatever version.
    pub fn kind(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        let found = self.by_plural.binary_search_by(|kind| place(kind).cmp(&(plural, group)));
        found.ok().map(|at| &self.by_plural[at])
    }

    fn has_group(&self, group: &str) -> bool {
        self.kinds.iter().any(|kind| kind.group == group && kind.versions.iter().any(|version| version.served))
    }
}

/// What a row is found by: its plural name says more than its group.
fn place(kind: &Kind) -> (&str, &str) {
    (&kind.plural, &kind.group)
}
