//! Range reads: revision, filters, sort order and limit.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::record::Record;
use crate::{Revision, Span};

/// A read of the key space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub span: Span,
    /// The revision to read at; 0 or less means the current one.
    pub revision: Revision,
    /// Maximum number of keys; 0 or less means unlimited.
    pub limit: i64,
    pub sort: Option<Sort>,
    /// Whether values are omitted.
    pub keys_only: bool,
    /// Whether only the count is returned.
    pub count_only: bool,
    /// Filter by mod revision.
    pub mod_revision: Bounds,
    /// Filter by create revision.
    pub create_revision: Bounds,
}

/// A closed interval of revisions; 0 means unbounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Bounds {
    pub min: Revision,
    pub max: Revision,
}

/// An order other than by ascending key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    pub by: SortBy,
    pub descending: bool,
}

/// Sort key of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
    Key,
    Version,
    CreateRevision,
    ModRevision,
    Value,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RangeReply {
    /// The state's revision at the time of the read.
    pub revision: Revision,
    /// The keys. The caller omits the values if `keys_only` is set.
    pub records: Vec<Arc<Record>>,
    /// Whether the limit truncated the result.
    pub more: bool,
    /// Number of keys in the span, before filters and limit.
    pub count: i64,
    /// Whether values are to be omitted.
    pub keys_only: bool,
}

impl Range {
    /// Reads the entire span at the current revision.
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

    /// Returns the number of records to read before the limit applies: all, if they are filtered or sorted first.
    pub(crate) fn fetch_max(&self) -> usize {
        let unfiltered = self.mod_revision == Bounds::default() && self.create_revision == Bounds::default();
        match usize::try_from(self.limit) {
            Ok(limit) if limit > 0 && unfiltered && self.sort.is_none() => limit.saturating_add(1),
            _ => usize::MAX,
        }
    }

    /// Filters, sorts and truncates the records.
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
