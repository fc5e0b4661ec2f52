//! The kind table: lookup of the served kinds by group, version and plural name.

use std::sync::Arc;

use api::kind::Kind;
use apimachinery::status::{Reason, Status};

/// The kinds that are currently served.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Sorted by plural name and group, without duplicates.
    by_plural: Vec<Arc<Kind>>,
    /// All kinds, in discovery order.
    pub kinds: Vec<Arc<Kind>>,
}

/// The result of a lookup.
pub enum KindLookup {
    /// A kind in a served version.
    Kind(Arc<Kind>),
    /// The group is served, but not this resource or version.
    NotServed,
    /// The group is not served.
    NoGroup,
}

impl Table {
    pub fn new(kinds: Vec<Arc<Kind>>) -> Self {
        let mut by_plural = kinds.clone();
        by_plural.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        // Later entries override earlier ones with the same name.
        by_plural.reverse();
        by_plural.dedup_by(|a, b| sort_key(a) == sort_key(b));
        by_plural.reverse();
        Self { by_plural, kinds }
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> KindLookup {
        match self.kind(group, plural).filter(|kind| kind.version(version).is_some_and(|version| version.served)) {
            Some(kind) => KindLookup::Kind(kind.clone()),
            None if self.has_group(group) => KindLookup::NotServed,
            None => KindLookup::NoGroup,
        }
    }

    /// Returns the kind of a resource, regardless of version.
    pub fn kind(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        let found = self.by_plural.binary_search_by(|kind| sort_key(kind).cmp(&(plural, group)));
        found.ok().map(|at| &self.by_plural[at])
    }

    fn has_group(&self, group: &str) -> bool {
        self.kinds.iter().any(|kind| kind.group == group && kind.versions.iter().any(|version| version.served))
    }
}

/// Returns the sort key of a kind. The plural name comes first because it is more selective than the group.
fn sort_key(kind: &Kind) -> (&str, &str) {
    (&kind.plural, &kind.group)
}

/// Returns the 404 for an unknown resource or version in a known group.
pub fn not_served() -> Status {
    let message = "the server could not find the requested resource";
    Status::failure(Reason::NotFound, message).with_details(Default::default())
}
