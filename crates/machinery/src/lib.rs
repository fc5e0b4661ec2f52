//! API machinery: the operations common to all Kubernetes objects. Pure and synchronous, over one JSON tree.
//!
//! This crate knows no specific kind. [`Value`] is the tree, [`schema`] describes valid trees, and the other modules
//! are the operations that every object passes through between client and store.

pub mod apply;
pub mod at;
pub mod bridge;
pub mod collection;
pub mod conform;
pub mod custom;
pub mod defaulting;
pub mod field;
pub mod field_validation;
pub mod fields;
pub mod go;
pub mod gvk;
pub mod json;
pub mod jsonpath;
pub mod labels;
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
pub mod status;
pub mod table;
pub mod time;
pub mod validate;
pub mod value;
pub mod yaml;

pub use at::At;
pub use collection::{Collection, Key};
pub use field::Errors;
pub use gvk::{GroupVersion, GroupVersionKind};
pub use path::Path;
pub use resource::Resource;
pub use schema::Schema;
pub use value::{Object, Str, Value};
