//! Reading: which keys, as of when, filtered, sorted and cut how.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::record::Record;
use crate::{Revision, Span};

/// A read of the key space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Which keys.
    pub span: Span,
    /// As of which revision; 0 or less is now.
    pub revision: Revision,
    /// How many at most; 0 or less is all.
    pub limit: i64,
    /// In which order.
    pub sort: Option<Sort>,
    /// Whether keys come without their values.
    pub keys_only: bool,
    /// Whether only the count is wanted.
    pub count_only: bool,
    /// Only keys with these modification revisions.
    pub mod_revision: Bounds,
    /// Only keys with these creation revisions.
    pub create_revision: Bounds,
}

/// A closed interval of revisions; 0 is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Bounds {
    pub min: Revision,
    pub max: Revision,
}

/// An order other than by ascending key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// What is sorted by.
    pub by: SortBy,
    /// Greatest first.
    pub descending: bool,
}

/// What a range can be sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of a key's attributes")]
pub enum SortBy {
    Key,
    Version,
    CreateRevision,
    ModRevision,
    Value,
}

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RangeReply {
    /// The state's revision when it was read.
    pub revision: Revision,
    /// The keys, whose values are to be left out if the request said so.
    pub records: Vec<Arc<Record>>,
    /// Whether the limit cut something off.
    pub more: bool,
    /// How many keys the span holds, before filters and limit.
    pub count: i64,
    /// Whether values are to be left out.
    pub keys_only: bool,
}

impl Range {
    /// The whole span, now.
    pub fn of(span: Span) -> Self {
        Self {
            span,
            revision: 0,
            limit: 0,
            sort: None,
            keys_only: false,
            count_only: false,
            mod_revision: Bounds::default(),
            create_revision: Bounds::default(),
        }
    }

    /// How many records must be read before the limit can be known to cut: all of them when a filter or an order comes first.
    pub(crate) fn fetch_max(&self) -> usize {
        let unfiltered = self.mod_revision == Bounds::default() && self.create_revision == Bounds::default();
        match usize::try_from(self.limit) {
            Ok(limit) if limit > 0 && unfiltered && self.sort.is_none() => limit.saturating_add(1),
            _ => usize::MAX,
        }
    }

    /// Filters, sorts and cuts what was read.
    pub(crate) fn arrange(&self, mut records: Vec<Arc<Record>>, count: usize, revision: Revision) -> RangeReply {
        records.retain(|record| {
            self.mod_revision.contain(record.mod_revision) && self.create_revision.contain(record.create_revision)
        });
        if let Some(sort) = self.sort {
            records.sort_by(|a, b| sort.order(a, b));
        }
        let limit = usize::try_from(self.limit).unwrap_or(0);
        let more = limit > 0 && records.len() > limit;
        if more {
            records.truncate(limit);
        }
        let count = i64::try_from(count).expect("memory holds fewer than 2^63 keys");
        RangeReply { revision, records, more, count, keys_only: self.keys_only }
    }
}

impl Bounds {
    fn contain(self, revision: Revision) -> bool {
        (self.min == 0 || revision >= self.min) && (self.max == 0 || revision <= self.max)
    }
}

impl Sort {
    fn order(self, a: &Record, b: &Record) -> Ordering {
        let order = match self.by {
            SortBy::Key => a.key().cmp(b.key()),
            SortBy::Version => a.version.cmp(&b.version),
            SortBy::CreateRevision => a.create_revision.cmp(&b.create_revision),
            SortBy::ModRevision => a.mod_revision.cmp(&b.mod_revision),
            SortBy::Value => a.value().cmp(b.value()),
        };
        if self.descending { order.reverse() } else { order }
    }
}
