//! Server-side apply, and field ownership after any write.
//!
//! [`Write`] is one write to one object. [`Write::apply`] merges a manager's configuration into the live object,
//! removes the fields that the manager applied before and no longer does, and rejects changes to fields of other
//! managers unless forced. [`Write::update`] is for every other write: the object is already in its new state, and the
//! manager owns the changed fields.
//!
//! Both are built on pure operations on [`FieldSet`]s and on values walked by their [`Schema`](crate::Schema):
//! [`field_set`], [`compare()`], [`merge()`], [`remove()`]. All share one definition of a field: a leaf, an entry of a
//! map, an item of a list that has keys.

pub mod collect;
pub mod compare;
pub mod conflict;
pub mod fields_v1;
pub mod fieldset;
mod gotext;
mod last_applied;
pub mod managers;
pub mod merge;
pub mod path;
mod prune;
pub mod reconcile;
pub mod remove;
pub mod scale;
mod typed;
pub mod validate;
mod write;
pub mod zero;

pub use collect::field_set;
pub use compare::{Comparison, compare};
pub use conflict::{Cause, Conflict, Conflicts};
pub use fieldset::FieldSet;
pub use managers::{Operation, Owner, Owners, OwnersError};
pub use merge::merge;
pub use path::Element;
pub use remove::{extract, remove};
pub use validate::{Duplicates, Violations, validate};
pub use write::{ApplyResult, Error, OneVersion, Versions, Write, keep_times};
pub use zero::zero;
