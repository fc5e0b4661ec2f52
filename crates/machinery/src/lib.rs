//! The laws every Kubernetes object obeys: pure, synchronous, over one JSON tree.
//!
//! Nothing here knows a kind. [`Value`] is the tree, [`schema`] says what a tree must look like, and the other modules are
//! the operations that every object goes through on its way from a client to the store and back.

pub mod field;
pub mod go;
pub mod gvk;
pub mod json;
pub mod path;
pub mod quantity;
pub mod schema;
pub mod time;
pub mod value;

pub use gvk::{GroupVersion, GroupVersionKind};
pub use path::Path;
pub use schema::Schema;
pub use value::{Object, Str, Value};
