//! API machinery: the operations common to all Kubernetes objects. Pure and synchronous, over one JSON tree.
//!
//! This crate knows no specific kind. [`Value`] is the tree, [`schema`] describes valid trees, and the other modules
//! are the operations that every object passes through between client and store.
//!
//! # Invariants
//!
//! - The keys of an object are sorted and unique, in whatever order they arrive. *Enforced by*
//!   `entries_are_sorted_by_key`.
//! - Input nests at most 127 levels in every encoding, so that no walk over a tree exhausts the stack. *Enforced by*
//!   `nesting_is_limited_to_127_levels`, `nesting_is_bounded`, `nesting_and_aliases_are_bounded`.
//! - `conform` is idempotent and leaves upstream's output unchanged. *Enforced by* `conform_is_idempotent`,
//!   `compare_conformed_output`.
//! - Pruning and defaulting are idempotent. Validation reports a limited number of errors. *Enforced by*
//!   `pruning_is_idempotent`, `defaulting_is_idempotent`, `number_of_errors_is_limited`.
//! - A patch applies completely or not at all, and the work of a patch is bounded by its size. *Enforced by*
//!   `patch_applies_like_its_single_operations_up_to_the_first_failure`, `excessive_list_shifting_is_rejected`.
//! - Server-side apply is idempotent, including the times in managedFields. Equal field sets have one representation.
//!   *Enforced by* `apply_is_idempotent`, `equal_sets_have_the_same_representation`.
//! - Every recorded failure of kube-apiserver can be built by a constructor of `status`, with the same message.
//!   *Enforced by* `compare_failures_with_recordings`.

pub mod apply;
pub mod collection;
pub mod conform;
pub mod custom_decode;
pub mod defaulting;
pub mod field;
pub mod field_ref;
pub mod field_validation;
pub mod fields;
pub mod go;
pub mod gvk;
pub mod json;
pub mod jsonpath;
pub mod labels;
pub mod list;
pub mod meta;
pub mod names;
pub mod patch;
pub mod path;
pub mod protobuf;
pub mod pruning;
pub mod quantity;
pub mod regexp;
pub mod resource;
pub mod schema;
pub mod serde_bridge;
pub mod status;
pub mod table;
pub mod time;
pub mod validate;
pub mod value;
pub mod yaml;

pub use collection::{Collection, Key};
pub use field::Errors;
pub use field_ref::At;
pub use gvk::{GroupVersion, GroupVersionKind};
pub use path::Path;
pub use resource::{GroupResource, Resource};
pub use schema::Schema;
pub use value::{Object, Str, Value};
